"""Two logs of one run become one: `trainer_log.jsonl` has the times, `trainer_state.json` the gradient norm."""

from itertools import compress

from .curves import Column, Curves
from .names import LOSS

AGREE = 0.9
"""Share of the common steps whose loss must be the same, else they are two runs."""


def join(log: Curves, state: Curves) -> Curves:
    """The log that goes further, with the columns and rows that only the other one has."""
    if len(log) == 0 or len(state) == 0:
        return log if len(log) else state
    base, other = (log, state) if log.steps[-1] >= state.steps[-1] else (state, log)
    names = f"{log.path.name} and {state.path.name}"
    places = {step: row for row, step in enumerate(base.steps)}
    if any(found.kind == "restart" for found in base.breaks):
        places = {step: row for step, row in places.items() if row >= base.breaks[-1].row}
    pairs = [(row, places[step]) for row, step in enumerate(other.steps) if step in places]
    if not _same_run(base, other, pairs):
        base.notes.append(f"{names} are of different runs: only {base.path.name} was read")
        return base
    for name, theirs in other.columns.items():
        mine = base.columns.setdefault(name, Column(len(base)))
        for there, here in compress(pairs, (theirs.present[there] for there, _ in pairs)):
            if not mine.present[here]:
                mine[here] = theirs.values[there]
    if base.kind == "sft" and other.kind in ("preference", "rl"):
        base.kind = other.kind
    base.max_steps = base.max_steps or other.max_steps
    base.resumes = base.resumes or other.resumes
    base.notes = [f"joined {names}", *base.notes, *other.notes]
    return base


def _same_run(base: Curves, other: Curves, pairs: list[tuple[int, int]]) -> bool:
    mine, theirs = base.columns.get(LOSS), other.columns.get(LOSS)
    if mine is None or theirs is None:
        return bool(pairs)
    both = [(theirs[there], mine[here]) for there, here in pairs if theirs.present[there] and mine.present[here]]
    same = sum(a == b or a != a or b != b or abs(a - b) <= 1e-3 * max(abs(a), abs(b)) + 1e-4 for a, b in both)
    return bool(both) and same >= AGREE * len(both)
