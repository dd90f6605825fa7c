"""The verdict on one resume, from what was recorded before it and after it."""

import json
from collections.abc import Sequence

from ..detect.resume_gap import LEAST
from ..logs.resumed import Resumed
from .columns import epoch, gradient_norm, learning_rate, loss
from .lacking import GRAVE, another_at_once, by_numbers, joined
from .said import BROKEN, DIFFERS, EQUAL, EXACT, FEW, NOISE, NOTHING, UNKNOWN, Column, Continuity, Lack, Said
from .samples import Samples, order

#: columns that prove by themselves that something does not go on; a gradient norm does not
_PROVES = ("learning_rate", "epoch", "samples", "loss")
#: settings of which a resume takes no notice: the checkpoint's schedule goes on
_IGNORED = ("learning_rate",)


def judge(
    resumed: Resumed,
    lacks: Sequence[Lack] = (),
    samples: Samples | None = None,
    changed: Sequence[dict] = (),
    has_loss: bool = True,
) -> Continuity:
    """Judge one resume.

    Args:
        lacks: what is known not to have been restored, beside the numbers.
        samples: what the log of samples says, None where there is none.
        changed: settings that differ from the start before, `{"key", "a", "b"}` as in `run.json`.
        has_loss: the loss says something (in reinforcement learning it does not).
    """
    unknown = Column("loss", UNKNOWN, Said("loss.unknown"))
    known = [one for one in lacks if one.by != "folder"]
    the_samples = order(samples)
    same = the_samples.status == EQUAL or (the_samples.status != DIFFERS and not changed)
    redrawn = same and any(one.part == "rng" for one in known)
    judged = [loss(resumed, redrawn) if has_loss else unknown, gradient_norm(resumed), learning_rate(resumed)]
    columns = {column.name: column for column in (*judged, epoch(resumed), the_samples)}
    not_restored = joined(known, by_numbers(resumed, columns))
    rate_is_another = columns["learning_rate"].status == DIFFERS
    reasons = [columns[name].told for name in _PROVES if columns[name].status == DIFFERS]
    reasons += [
        Said(f"lacks.{one.part}", {"why": one.why}) if isinstance(one.why, str) else one.why
        for one in not_restored
        if one.part in GRAVE and one.why not in reasons and not (one.part == "scheduler" and rate_is_another)
    ]
    faded = _is_faded(columns, reasons)
    verdict = BROKEN if reasons else _goes_on(resumed, columns, not_restored)
    at_hand = [one for one in lacks if one.by == "folder"] if verdict == BROKEN else []
    return Continuity(
        step=resumed.step,
        verdict=verdict,
        reasons=reasons,
        columns=columns,
        not_restored=joined(not_restored, at_hand),
        notes=_notes(columns, not_restored, at_hand, changed, resumed),
        rows=len(resumed.after),
        made_twice=max(column.compared for column in columns.values()),
        row_steps=resumed.row_steps,
        faded=faded,
        segment=resumed.segment,
        run=resumed.run,
    )


def _goes_on(resumed: Resumed, columns: dict[str, Column], not_restored: list[Lack]) -> str:
    made_twice = [column for column in columns.values() if column.compared]
    if columns["loss"].status == EQUAL and all(column.status == EQUAL for column in made_twice):
        return NOISE if not_restored else EXACT
    if columns["loss"].status != UNKNOWN:
        return NOISE
    if all(columns[name].status == UNKNOWN for name in _PROVES) and not resumed.before:
        return NOTHING
    if len(resumed.after) < LEAST:
        return FEW
    return NOISE if any(columns[name].status != UNKNOWN for name in _PROVES) else NOTHING


def _is_faded(columns: dict[str, Column], reasons: list[Said]) -> bool:
    return reasons == [columns["loss"].told] and bool(columns["loss"].numbers.get("faded"))


def _notes(
    columns: dict[str, Column], not_restored: list[Lack], at_hand: list[Lack], changed: Sequence[dict], resumed: Resumed
) -> list[Said]:
    lacking = ", ".join(one.words("en") for one in at_hand if "only together" not in one.words("en"))
    notes = [Said("note.holds_none", {"why": lacking})] if lacking else []
    if any(one.part == "rng" and one.by != "numbers" for one in not_restored) and columns["loss"].compared:
        is_other = columns["samples"].status != DIFFERS and another_at_once(resumed, share=0.0)
        if is_other:
            notes.append(is_other)
        elif columns["loss"].status != DIFFERS:
            notes.append(Said("note.rng_not_visible"))
    goes_on = columns["learning_rate"].status not in (DIFFERS, UNKNOWN)
    for one in changed:
        name = one["key"].rpartition(".")[2]
        key = "note.ignored" if name in _IGNORED and goes_on else "note.changed"
        notes.append(Said(key, {"name": name, "a": _in_yaml(one.get("a")), "b": _in_yaml(one.get("b"))}))
    return notes


def _in_yaml(value: object) -> object:
    """`true`, `false` and `null` as they are written; all else as it is."""
    return json.dumps(value) if value is None or isinstance(value, bool) else value
