"""What `preflight` said of a run that was about to start: a file beside its output folder.

Not in the folder: LlamaFactory takes a folder that is not empty for an earlier run's.
"""

import contextlib
import json
import os
from pathlib import Path

#: keys that say where a run goes on or is written, not what it does
NOT_COMPARED = frozenset(
    ("output_dir", "overwrite_output_dir", "resume_from_checkpoint", "callbacks", "obs", "report_to", "run_name")
)


def gates_file(output_dir: str | os.PathLike) -> Path:
    """`<output_dir>-preflight.json`, as the smoke run's folder is `<output_dir>-smoke`."""
    path = Path(os.path.abspath(output_dir))
    return path.with_name(f"{path.name}-preflight.json")


def read_gates(file: Path) -> dict:
    """`{"config", "given", "gates": [{"name", "status", "checks", "fix", "time"}]}`; {} where there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or not isinstance(content.get("gates"), list):
        return {}
    gates = [gate for gate in content["gates"] if isinstance(gate, dict) and isinstance(gate.get("name"), str)]
    return content | {"gates": gates, "given": content["given"] if isinstance(content.get("given"), dict) else {}}


def changed_keys(before: dict, now: dict) -> list[str]:
    """Keys of a config that are not the same in both; a number and its text are."""
    names = (set(before) | set(now)) - NOT_COMPARED
    return sorted(name for name in names if _same(before.get(name)) != _same(now.get(name)))


def _same(value: object) -> str:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    return json.dumps(value, sort_keys=True, default=str)
