"""`samples.jsonl`, the audit log of batches: which samples each micro-batch of each step and rank held."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from ..errors import ConfigError
from .reader import find_folder, read_row
from .schema import FOLDER

_NAME = re.compile(r"samples(?:\.rank-(\d+))?\.jsonl")
#: how our rows begin: a row of another step need not be decoded
_STEP = re.compile(rb'\{"step":\s*(\d+)[,}]')


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
        ConfigError: there is no record, or a file of it cannot be read.
    """
    own = [folder for folder in (Path(path) / FOLDER, Path(path)) if sample_files(folder)]  # a node may have no more
    folder = own[0] if own else find_folder(path)
    newest: dict[int, int] = {}
    found: dict[int, dict[int, list]] = {}
    for rank, file in sample_files(folder).items():
        for row in sample_rows(file, steps):
            if row is None:
                continue
            step, segment = row["step"], row.get("segment", 0)
            if segment > newest.get(step, -1):
                newest[step], found[step] = segment, {}
            if segment == newest[step]:
                found[step][rank] = row["micro_batches"]
    return {step: dict(sorted(found[step].items())) for step in sorted(found)}


def sample_rows(file: Path, steps: Collection[int] | None = None) -> Iterator[dict | None]:
    """The rows of one rank's file in the order written, with `step` and `micro_batches`; None for one that is damaged.

    Args:
        steps: only these; None for all.

    Raises:
        ConfigError: the file cannot be read.
    """
    for line in _lines(file):
        begin = _STEP.match(line)
        if steps is not None and begin and int(begin[1]) not in steps:
            continue
        row = read_row(line)
        if row is None or not {"step", "micro_batches"} <= row.keys():
            yield None
        elif steps is None or row["step"] in steps:
            yield row


def sampled_steps(file: Path) -> set[int]:
    """The steps that one rank's file holds.

    Raises:
        ConfigError: the file cannot be read.
    """
    begun = ((line, _STEP.match(line)) for line in _lines(file))
    found = (int(begin[1]) if begin else (read_row(line) or {}).get("step") for line, begin in begun)
    return {step for step in found if step is not None}


def _lines(file: Path) -> Iterator[bytes]:
    """The lines that hold anything; the file is never held as a whole."""
    try:
        with file.open("rb") as lines:
            yield from (line for line in lines if line.strip())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
