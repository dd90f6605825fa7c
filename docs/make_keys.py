"""Writes the tables of `docs/keys.md` and `docs/callbacks/` from the code: `python docs/make_keys.py`."""

from pathlib import Path

from llamafactory_obs.callbacks.basics import Basics
from llamafactory_obs.plugin.registry import OWN, resolve

DOCS = Path(__file__).parent
#: heading under which a callback's page has its columns; the last one of the page
COLUMNS = "## Columns"


def table() -> list[str]:
    """One line per key, in the order of the code."""
    rows = [(key, "every record") for key in Basics.keys]
    rows += [(key, f"`{name}`") for name in OWN for key in resolve(name, name).keys]
    rows += [(key, f"`{name}`, tracker only") for name in OWN for key in resolve(name, name).tracker_keys]
    return [f"| `{key.name}` | {key.unit} | {key.reduce} | {key.doc} | {who} |" for key, who in rows]


def columns(name: str) -> list[str]:
    """The end of one callback's page: what it adds to `steps.jsonl` and to the tracker."""
    callback = resolve(name, name)
    lines = [COLUMNS, ""]
    for keys, where in ((callback.keys, "In `steps.jsonl` and the tracker"), (callback.tracker_keys, "In the tracker")):
        if keys:
            lines += [f"{where}:", "", "| key | unit | across ranks | meaning |", "|---|---|---|---|"]
            lines += [f"| `{key.name}` | {key.unit} | {key.reduce} | {key.doc} |" for key in keys] + [""]
    if len(lines) == 2:
        lines += ["None of its own in `steps.jsonl`.", ""]
    return [*lines, "What is in every record whatever callbacks are named: [keys.md](../keys.md)."]


def page(name: str) -> str:
    """The whole page of one callback, with its columns as the code has them."""
    text = (DOCS / "callbacks" / f"{name}.md").read_text(encoding="utf-8").partition(COLUMNS)[0].rstrip()
    return "\n".join([text, "", *columns(name)]) + "\n"


if __name__ == "__main__":
    keys = DOCS / "keys.md"
    lines = keys.read_text(encoding="utf-8").splitlines()
    first = lines.index("|---|---|---|---|---|") + 1
    last = first + sum(line.startswith("| `") for line in lines)
    keys.write_text("\n".join([*lines[:first], *table(), *lines[last:]]) + "\n", encoding="utf-8")
    for name in OWN:
        (DOCS / "callbacks" / f"{name}.md").write_text(page(name), encoding="utf-8")
