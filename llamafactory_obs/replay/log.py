"""The audit log that the callback `samples` writes: which samples each micro-batch of each step and rank held."""

from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from ..record.samples import sample_files, sample_rows, sampled_steps
from ..record.schema import FOLDER

#: so many steps nearest to the wanted one are read: ordinary batches are looked for among them
NEAR = 256

_SWITCH_ON = "the run must have `samples` under `callbacks:`, then every later step is logged"


@dataclass(frozen=True)
class Logged:
    """One sample as the log has it.

    Attributes:
        row: its position in the training set that the Trainer was given; None where the Trainer got a stream.
        sources: `(data set, row in its source)` of the conversations in it; None where that is not known.
        tokens, supervised: real tokens, and those of them with a label.
        hash, labels_hash: of its real input ids and of their labels, see `samples.content.digest`.
        same: other rows of the training set with the same content.
        labels: all its labels, only where a supervised one is not the token at its own position.
        rejected: the other answer of a pair.
    """

    row: int | None
    sources: tuple[tuple[str, int], ...] | None
    tokens: int
    supervised: int
    hash: str
    labels_hash: str
    same: int = 0
    labels: tuple[int, ...] | None = None
    rejected: "Logged | None" = None


@dataclass(frozen=True)
class LoggedStep:
    """One optimizer step: rank -> its micro-batches -> their samples. `incomplete`: training broke off in it."""

    step: int
    segment: int
    ranks: dict[int, list[list[Logged]]]
    incomplete: bool = False


@dataclass
class SampleLog:
    """The part of a log that lies around one step.

    Attributes:
        near: the nearest steps, up to `NEAR` of them, and the step itself.
        first, last, count: of all steps recorded.
        ranks: whose files there are.
        damaged: lines near the step that cannot be read.
    """

    near: dict[int, LoggedStep] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    count: int = 0
    ranks: tuple[int, ...] = ()
    damaged: int = 0


def read_log(output_dir: Path, step: int, rank: int | None = None) -> SampleLog:
    """Read the log around a step; of several segments the newest one that has a step counts.

    Args:
        rank: only this one's file.

    Raises:
        ConfigError: there is no log, or it does not hold this step.
    """
    files = _files(output_dir)
    if rank is not None:
        if rank not in files:
            known = ", ".join(map(str, sorted(files)))
            raise ConfigError(f"--rank {rank}: no such log in {output_dir / FOLDER} (there are those of ranks {known})")
        files = {rank: files[rank]}
    steps = {number for file in files.values() for number in sampled_steps(file)}
    nearest = set(sorted(steps, key=lambda one: (abs(one - step), one))[: NEAR + 1])
    log = SampleLog(ranks=tuple(files), first=min(steps, default=0), last=max(steps, default=0), count=len(steps))
    found: dict[tuple[int, int], dict[int, list[list[Logged]]]] = {}
    broken = set()
    for one, file in files.items():
        for row in sample_rows(file, nearest):
            if row is None or (batches := _batches(row)) is None:
                log.damaged += 1
                continue
            place = row["step"], row.get("segment", 0)
            found.setdefault(place, {})[one] = batches
            broken |= {place} if row.get("incomplete") else set()
    for place in sorted(found):
        log.near[place[0]] = LoggedStep(*place, dict(sorted(found[place].items())), place in broken)
    if step not in log.near:
        raise ConfigError(_missing(step, steps, log, output_dir))
    return log


def _files(output_dir: Path) -> dict[int, Path]:
    folder = output_dir / FOLDER
    files = sample_files(folder)
    if not files:
        raise ConfigError(f"{folder}: no samples.jsonl, so the batches of this run are not known; {_SWITCH_ON}")
    return files


def _missing(step: int, steps: set[int], log: SampleLog, output_dir: Path) -> str:
    where = f"step {step} is not in the log of {output_dir}"
    if not steps:
        return f"{where}: it holds no step yet; {_SWITCH_ON}"
    nearest = sorted(sorted(steps, key=lambda one: (abs(one - step), one))[:4])
    damaged = f" ({log.damaged} lines near it cannot be read)" if log.damaged else ""
    return (
        f"{where}{damaged}: it holds {log.count} steps from {log.first} to {log.last}; nearest: "
        f"{', '.join(map(str, nearest))}"
    )


def _batches(row: dict) -> list[list[Logged]] | None:
    """The samples of a row by micro-batch; None where one of them lacks what ours have."""
    try:
        return [[_sample(sample) for sample in batch] for batch in row["micro_batches"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _sample(found: dict) -> Logged:
    sources = found.get("sources")
    labels, rejected = found.get("labels"), found.get("rejected")
    return Logged(
        row=None if found.get("row") is None else int(found["row"]),
        sources=None if sources is None else tuple((str(name), int(row)) for name, row in sources),
        tokens=int(found["tokens"]),
        supervised=int(found["supervised"]),
        hash=str(found["hash"]),
        labels_hash=str(found["labels_hash"]),
        same=int(found.get("same") or 0),
        labels=None if labels is None else tuple(map(int, labels)),
        rejected=None if rejected is None else _sample(rejected),
    )
