"""`samples.jsonl`, the audit log of batches: which samples each micro-batch of each step and rank held."""

import re
from collections.abc import Collection
from pathlib import Path

from .reader import find_folder, read_rows
from .schema import FOLDER

_NAME = re.compile(r"samples(?:\.rank-(\d+))?\.jsonl")


def samples_file(rank: int) -> str:
    """The file of a rank: each has its own, so that two processes never write into one."""
    return "samples.jsonl" if rank == 0 else f"samples.rank-{rank}.jsonl"


def sample_files(folder: Path) -> dict[int, Path]:
    """Rank -> its file, of those that lie in an `obs/` folder."""
    found = [(_NAME.fullmatch(file.name), file) for file in sorted(folder.iterdir())] if folder.is_dir() else []
    return dict(sorted((int(match[1] or 0), file) for match, file in found if match))


def read_samples(path: str | Path, steps: Collection[int] | None = None) -> dict[int, dict[int, list[list[dict]]]]:
    """Read the log of a run: for each step the newest start of training (segment) that has it.

    Args:
        path: the run's output folder, or its `obs/` folder.
        steps: only these; None for all.

    Returns:
        step -> rank -> micro-batches -> samples, ordered by step and rank. A sample is as docs/record.md says.

    Raises:
        ConfigError: there is no record.
    """
    own = [folder for folder in (Path(path) / FOLDER, Path(path)) if sample_files(folder)]  # a node may have no more
    folder = own[0] if own else find_folder(path)
    newest: dict[int, int] = {}
    found: dict[int, dict[int, list]] = {}
    for rank, file in sample_files(folder).items():
        for row in read_rows(file)[0]:
            step, segment = row.get("step"), row.get("segment", 0)
            if "micro_batches" not in row or (steps is not None and step not in steps):
                continue
            if segment > newest.get(step, -1):
                newest[step], found[step] = segment, {}
            if segment == newest[step]:
                found[step][rank] = row["micro_batches"]
    return {step: dict(sorted(found[step].items())) for step in sorted(found)}
