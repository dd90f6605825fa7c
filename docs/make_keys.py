"""Writes the table of `docs/keys.md` from the code: `python docs/make_keys.py`."""

from pathlib import Path

from llamafactory_obs.callbacks.basics import Basics
from llamafactory_obs.plugin.registry import OWN, resolve

PAGE = Path(__file__).with_name("keys.md")


def table() -> list[str]:
    """One line per key, in the order of the code."""
    rows = [(key, "every record") for key in Basics.keys]
    rows += [(key, f"`{name}`") for name in OWN for key in resolve(name, name).keys]
    rows += [(key, f"`{name}`, tracker only") for name in OWN for key in resolve(name, name).tracker_keys]
    return [f"| `{key.name}` | {key.unit} | {key.reduce} | {key.doc} | {who} |" for key, who in rows]


if __name__ == "__main__":
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index("|---|---|---|---|---|") + 1
    last = first + sum(line.startswith("| `") for line in lines)
    PAGE.write_text("\n".join([*lines[:first], *table(), *lines[last:]]) + "\n", encoding="utf-8")
