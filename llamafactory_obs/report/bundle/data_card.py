"""The data card: per data set its files, rows, columns, tokens, licence. What is not known says why."""

import json
import re
from pathlib import Path

from ...identity.files import sha256_file
from ...record.samples import sample_files
from ...summary import Loaded, RunSummary
from ...summary.identity_facts import mappings, pick

#: bytes of a data file that is opened to count its rows
LARGEST = 1 << 30
_LICENCE = re.compile(r"^licen[cs]e:\s*(.+)$", re.MULTILINE | re.IGNORECASE)


def data_card(loaded: Loaded, summary: RunSummary) -> dict:
    """All data sets of the run, and what the training set as a whole was.

    Returns:
        `{"datasets": [{"name", "role", "source", "location", "formatting", "columns", "files": [{"file", "bytes",
        "sha256"}], "sha256", "rows", "tokens_seen", "licence", "unknown": {field: why}}], "training_set": {...}}`.
    """
    run = loaded.curves.run
    folder = pick(run, "config", "resolved", "data_args", "dataset_dir")
    seen = _tokens_seen(loaded)
    hashed = pick(run, "data", "files")
    cards = []
    for row in mappings(run, "data", "datasets"):
        files = pick(hashed, str(row.get("name")))
        cards.append(_card(row, files if isinstance(files, dict) else {}, folder, seen))
    data, rows = summary.data, pick(run, "data", "rows")
    rows = rows if isinstance(rows, dict) else {}
    training_set = {
        "rows": rows.get("rows"),
        "tokens": rows.get("tokens"),
        "sha256": rows.get("sha256"),
        "columns": sorted(map(str, rows.get("columns") or ())),
        "template": summary.brief.template,
        "template_sha256": summary.brief.template_sha256,
        "settings": pick(run, "data", "settings"),
        "longest_row_seen": summary.used.longest_row,
        "supervised_ratio": data.supervised_ratio,
        "padding_ratio": data.padding_ratio,
        "truncated_ratio": data.truncated_ratio,
    }
    unknown = [one for one in mappings(run, "unknown") if str(one.get("what")).startswith("data")]
    said = {str(one["what"]): one.get("why") for one in unknown}
    return {"datasets": cards, "training_set": training_set, "unknown": said}


def _card(row: dict, hashed: dict, dataset_dir: object, seen: dict[str, int]) -> dict:
    entry = row.get("entry") if isinstance(row.get("entry"), dict) else {}
    unknown: dict[str, str] = {}
    files = [{name: one.get(name) for name in ("file", "bytes", "sha256")} for one in mappings(hashed, "files")]
    place = Path(dataset_dir) if isinstance(dataset_dir, str) else None
    rows, columns = _rows(row, files, place, unknown)
    licence = entry.get("license") or entry.get("licence") or _licence(row, place)
    if licence is None:
        unknown["licence"] = "neither the entry in dataset_info.json nor a README.md beside the file names one"
    if not files:
        unknown["files"] = "their hashes are not in the record"
    tokens = seen.get(str(row.get("name")))
    if tokens is None:
        unknown["tokens_seen"] = "the callback `samples` was not on"
    return {
        "name": row.get("name"),
        "role": row.get("role"),
        "source": row.get("source"),
        "location": row.get("location"),
        "formatting": entry.get("formatting", "alpaca") if entry else None,
        "columns": columns,
        "files": files,
        "sha256": hashed.get("sha256"),
        "rows": rows,
        "tokens_seen": tokens,
        "licence": licence,
        "unknown": unknown,
    }


def _rows(row: dict, files: list[dict], place: Path | None, unknown: dict) -> tuple[int | None, list[str] | None]:
    """Rows and columns of a data file that is still the one that was trained on."""
    why = None
    file = place / str(row.get("location")) if place is not None else None
    if row.get("source") != "file" or file is None or len(files) != 1:
        why = "only a data set of one local file is counted"
    elif file.suffix not in (".json", ".jsonl"):
        why = "only .json and .jsonl are counted"
    elif not file.is_file():
        why = "the file is not there any more"
    elif file.stat().st_size > LARGEST:
        why = f"the file is larger than {LARGEST >> 30} GiB"
    elif sha256_file(file) != files[0]["sha256"]:
        why = "the file is another one by now"
    if why is None:
        try:
            return _counted(file)
        except (OSError, ValueError, RecursionError) as error:
            why = f"it cannot be read ({type(error).__name__})"
    unknown["rows"] = unknown["columns"] = why
    return None, None


def _counted(file: Path) -> tuple[int, list[str]]:
    text = file.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(text)
        rows = rows if isinstance(rows, list) else [rows]
    except ValueError:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return len(rows), sorted({key for row in rows if isinstance(row, dict) for key in row})


def _licence(row: dict, place: Path | None) -> str | None:
    """From the front matter of a README.md beside the file, as data sets on the hub have it."""
    if place is None or row.get("source") != "file":
        return None
    try:
        text = (place / str(row.get("location"))).parent.joinpath("README.md").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    front = text.split("---", 2)[1] if text.startswith("---") and text.count("---") > 1 else ""
    found = _LICENCE.search(front)
    return found[1].strip() if found else None


def _tokens_seen(loaded: Loaded) -> dict[str, int]:
    """Tokens of each data set that were trained on, repeated steps included, from the log of samples.

    A packed row whose conversations are of several data sets counts for each by its share of conversations.
    """
    seen: dict[str, float] = {}
    for file in sample_files(loaded.record).values() if loaded.record is not None else ():
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    batches = json.loads(line)["micro_batches"]
                    for sample in (sample for batch in batches for sample in batch):
                        names = [source[0] for source in sample.get("sources") or []]
                        for name in names:
                            seen[name] = seen.get(name, 0.0) + sample["tokens"] / len(names)
                except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                    continue  # a torn line
    return {name: round(tokens) for name, tokens in seen.items()}
