"""Keeps what the gates said, so that the record sheet of the run can tell it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from ..identity.redact import redact
from ..record.gates import gates_file, read_gates
from ..record.schema import encode
from .run_config import RunConfig


def keep(config: RunConfig, gates: list[dict], english: Callable[[str], str]) -> Path | None:
    """Write the gates' answers beside the run's output folder; of gates that were not asked now the last ones stay.

    Args:
        english: what says a text in English, see `texts.remembering`.

    Returns:
        The file; None where the config names no output folder or it cannot be written: a verdict is none the worse.
    """
    output_dir = config.given.get("output_dir")
    if not gates or not isinstance(output_dir, str) or not output_dir.strip():
        return None
    file, now = gates_file(output_dir), time.time()
    given = redact(config.given)
    earlier = read_gates(file)
    held = {gate["name"]: gate for gate in earlier.get("gates", ())} if earlier.get("given") == given else {}
    held |= {gate["name"]: {**_in_english(gate, english), "time": now} for gate in gates}
    content = {"config": str(config.path), "given": given, "gates": list(held.values())}
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(encode(content, indent=1))
        os.replace(temporary, file)
    except OSError:
        temporary.unlink(missing_ok=True)
        return None
    return file


def _in_english(gate: dict, english: Callable[[str], str]) -> dict:
    """The gate with the words for people in English: the file is part of the record."""
    checks = [check | {"detail": english(check["detail"])} for check in gate["checks"]]
    return gate | {"checks": checks, "fix": english(gate["fix"])}
