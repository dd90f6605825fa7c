"""Does a training go on where it was interrupted? The judge on records, one thing wrong in each, and clean controls."""

import json
import math
import random

import pytest
from continuity_logs import CHECKPOINT, END, KILLED, batches, foreign, killed, record, row, rows, stopped

from llamafactory_obs.continuity.offline import continuity
from llamafactory_obs.continuity.said import BROKEN, EXACT, FEW, NOISE, NOTHING
from llamafactory_obs.continuity.words import in_words
from llamafactory_obs.logs.read import read

FIRST = CHECKPOINT + 1


def judged(path):
    """The one verdict on a log, with its JSON checked to be strict."""
    (said,) = continuity(read(path))
    json.loads(json.dumps(said.as_dict(), allow_nan=False))
    return said


def lost(said) -> dict[str, str]:
    return {one.part: one.by for one in said.not_restored}


def off(by: float, since: int = FIRST, column: str = "train/loss"):
    """A column that is another one by this much from a step on."""
    return lambda step, row: {column: row[column] + by} if step >= since else {}


# steps that were made twice


def test_equal_bit_by_bit(tmp_path):
    said = judged(record(tmp_path, *killed()))
    assert (said.verdict, said.step, said.made_twice) == (EXACT, FIRST, KILLED - CHECKPOINT)
    assert {name: column.status for name, column in said.columns.items()} == {
        "loss": "equal", "gradient_norm": "equal", "learning_rate": "equal", "epoch": "equal", "samples": "unknown",
    }  # fmt: skip
    assert "equal bit by bit in 7 steps made twice" in in_words(said, lang="en") and not said.not_restored


def test_one_bit_is_no_longer_exact(tmp_path):
    bit = lambda step, row: {"train/loss": math.nextafter(row["train/loss"], 9)} if step == 105 else {}  # noqa: E731
    said = judged(record(tmp_path, *killed(bit)))
    column = said.columns["loss"]
    assert (said.verdict, column.status, column.unequal, column.first) == (NOISE, "within noise", 1, 105)


@pytest.mark.parametrize("by, verdict", [(1e-6, NOISE), (0.01, NOISE), (0.1, BROKEN), (float("nan"), BROKEN)])
def test_a_loss_that_parts_is_told_with_its_step(tmp_path, by, verdict):
    said = judged(record(tmp_path, *killed(off(by, since=104))))
    assert said.verdict == verdict and said.columns["loss"].first == 104
    assert "step 104" in in_words(said, lang="en")


def test_the_noise_of_two_real_starts_is_no_break(tmp_path):
    """Bits in another order of sums, growing from step to step, as on a GPU."""
    for seed in range(20):
        draw = random.Random(seed)
        noise = lambda step, row, draw=draw: {  # noqa: E731
            "train/loss": row["train/loss"] + draw.gauss(0, 1e-7 * 2 ** min(step - CHECKPOINT, 16)),
            "train/grad_norm": row["train/grad_norm"] * (1 + draw.gauss(0, 1e-7 * 2 ** min(step - CHECKPOINT, 16))),
        }
        said = judged(record(tmp_path / str(seed), rows(1, END, 0), rows(FIRST, END, 1, noise)))
        assert said.verdict == NOISE and said.made_twice == 40 and not said.not_restored, in_words(said)


def test_an_update_with_another_optimizer_state_is_seen_before_the_loss_is_higher(tmp_path):
    parts = off(2e-3, since=FIRST + 1)
    said = judged(record(tmp_path / "own", *killed(parts)))
    assert said.verdict == BROKEN and lost(said) == {"optimizer": "numbers"}
    assert "those after its update are not" in in_words(said, lang="en")
    later = judged(record(tmp_path / "later", *killed(off(2e-3, since=FIRST + 2))))  # no update does that
    assert later.verdict == NOISE and not later.not_restored
    logged = judged(foreign(tmp_path / "trainer_log.jsonl", *killed(parts)))  # rounded numbers prove nothing
    assert logged.verdict == NOISE and not logged.not_restored


@pytest.mark.parametrize("digits, verdict", [(4, EXACT), (2, EXACT)])
def test_a_foreign_log_is_equal_as_it_is_logged(tmp_path, digits, verdict):
    said = judged(foreign(tmp_path / "trainer_log.jsonl", *killed(), digits=digits))
    assert said.verdict == verdict and "to the last digit that was logged" in in_words(said, lang="en")


def test_rows_of_several_steps(tmp_path):
    """logging_steps 10: the rows of steps 110 and 120 stand there twice."""
    every = lambda part: [one for one in part if one["step"] % 10 == 0]  # noqa: E731
    before, after = rows(10, 400, 0), rows(301, 600, 1)
    same = judged(foreign(tmp_path / "trainer_log.jsonl", every(before), every(after)))
    assert (same.verdict, same.step, same.made_twice) == (EXACT, 310, 10)
    other = rows(301, 600, 1, off(0.2, since=301))
    said = judged(foreign(tmp_path / "log.jsonl", every(before), every(other)))
    assert said.verdict == BROKEN and said.columns["loss"].first == 320
    part = rows(301, 600, 1, lambda step, row: {"train/loss": row["train/loss"] + 0.2} if step == 310 else {})
    alone = judged(foreign(tmp_path / "part.jsonl", every(before), every(part)))  # the mean of fewer steps
    assert alone.verdict == EXACT
    few = judged(foreign(tmp_path / "few.jsonl", every(before), every(rows(391, 410, 1))))
    assert (few.verdict, few.made_twice) == (EXACT, 1), "the first row counts where it is equal"
    assert in_words(few, lang="en").startswith("The resume before step 400 continues exactly: ")
    assert "in 1 row of 10 steps made twice (" in in_words(few, lang="en")


def test_the_checkpoint_between_two_rows_is_looked_at(tmp_path):
    """logging_steps 10, save_steps 35: it went on from checkpoint-105, and the next row is that of step 110."""
    every = lambda part: [one for one in part if one["step"] % 10 == 0]  # noqa: E731
    (tmp_path / "checkpoint-105").mkdir()
    said = judged(foreign(tmp_path / "trainer_log.jsonl", every(rows(1, 230, 0)), every(rows(106, 400, 1, off(0.5)))))
    assert said.verdict == BROKEN and lost(said)["optimizer"] == "folder"
    (tmp_path / "checkpoint-107").mkdir()  # which of them is not known
    assert not judged(tmp_path / "trainer_log.jsonl").not_restored


def test_another_rate_at_the_same_step(tmp_path):
    anew = lambda step, row: {"train/lr": 1e-3 * (1 - (step - FIRST) / 1000)}  # noqa: E731
    said = judged(record(tmp_path, *killed(anew)))
    assert said.verdict == BROKEN and lost(said) == {"scheduler": "numbers"}
    assert "0.001 instead of 0.0009" in in_words(said, lang="en")


def test_a_rate_that_control_has_scaled_is_the_same_schedule(tmp_path):
    half = lambda step, row: {"train/lr": row["train/lr"] / 2, "train/lr_scale": 0.5}  # noqa: E731
    assert judged(record(tmp_path, *killed(half))).columns["learning_rate"].status == "equal"


def test_another_place_in_the_data(tmp_path):
    anew = lambda step, row: {"train/epoch": (step - CHECKPOINT) / 400}  # noqa: E731
    said = judged(record(tmp_path, *killed(anew)))
    assert said.verdict == BROKEN and lost(said) == {"data_order": "numbers"}


def test_other_samples_at_the_same_step(tmp_path):
    order = list(range(800))
    other = [*order[:200], *random.Random(1).sample(order[200:], 600)]
    first = batches(1, KILLED, 0, order)
    same = judged(record(tmp_path / "same", *killed(), samples=first + batches(FIRST, END, 1, order)))
    assert same.verdict == EXACT and same.columns["samples"].compared == 7
    said = judged(record(tmp_path / "other", *killed(), samples=first + batches(FIRST, END, 1, other)))
    assert said.verdict == BROKEN and lost(said) == {"data_order": "numbers"}
    assert said.columns["samples"].first == FIRST and "other samples" in in_words(said, lang="en")


def test_the_same_samples_and_another_loss_at_once_are_other_random_numbers(tmp_path):
    order = list(range(800))
    samples = batches(1, KILLED, 0, order) + batches(FIRST, END, 1, order)
    said = judged(record(tmp_path, *killed(off(0.005)), samples=samples))
    assert said.verdict == NOISE and lost(said) == {"rng": "numbers"}


# no step was made twice


def test_samples_that_come_again_within_the_epoch(tmp_path):
    order = list(range(800))
    first = batches(1, CHECKPOINT, 0, order)
    goes_on = judged(record(tmp_path / "on", *stopped(), samples=first + batches(FIRST, END, 1, order)))
    assert goes_on.verdict == NOISE and goes_on.columns["samples"].status == "goes on"
    anew = [*order[:200], *random.Random(3).sample(order, 600)]
    said = judged(record(tmp_path / "anew", *stopped(), samples=first + batches(FIRST, END, 1, anew)))
    assert said.verdict == BROKEN and lost(said) == {"data_order": "numbers"}
    twice = [*order[:100], *order[:100], *order[:600]]  # this sampler draws with replacement
    again = batches(1, CHECKPOINT, 0, twice) + batches(FIRST, END, 1, twice)
    assert judged(record(tmp_path / "with", *stopped(), samples=again)).verdict == NOISE


SCHEDULES = {
    "linear": lambda step: 1e-3 * (1 - step / 1000),
    "constant": lambda step: 1e-3,
    "cosine": lambda step: 5e-4 * (1 + math.cos(math.pi * step / 1000)),
    "warm-up": lambda step: 1e-5 * step,
    "warm-up ends": lambda step: 1e-5 * min(step, 100),
    "decay begins": lambda step: 1e-3 * (1 - max(0, step - 100) / 200),
    "inverse square root": lambda step: 1e-2 / math.sqrt(step),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_that_goes_on_is_quiet_and_one_begun_anew_is_not(tmp_path, name):
    course = SCHEDULES[name]
    lr = lambda shift: lambda step, row: {"train/lr": course(step - shift)}  # noqa: E731
    before = rows(1, CHECKPOINT, 0, lr(0))
    assert judged(record(tmp_path / "on", before, rows(FIRST, END, 1, lr(0)))).verdict == NOISE
    said = judged(record(tmp_path / "anew", before, rows(FIRST, END, 1, lr(CHECKPOINT))))
    invisible = ("constant", "decay begins")  # the same rates again
    assert said.verdict == (NOISE if name in invisible else BROKEN)


@pytest.mark.parametrize("seed", range(6))
def test_a_level_that_jumps_and_its_control(tmp_path, seed):  # RES-1
    draw = random.Random(seed)
    level = lambda at: lambda step, row: {"train/loss": at + draw.gauss(0, 0.03), "train/lr": 1e-4}  # noqa: E731
    before = rows(1, CHECKPOINT, 0, level(0.95))
    control = judged(foreign(tmp_path / "control.jsonl", before, rows(FIRST, END, 1, level(0.95))))
    assert control.verdict == NOISE
    said = judged(record(tmp_path / "jump", before, rows(FIRST, END, 1, level(1.10))))
    assert said.verdict == BROKEN and not said.faded
    assert said.columns["loss"].numbers["standard_errors"] > 4


def test_a_jump_that_fades(tmp_path):
    fades = lambda step, row: {"train/loss": row["train/loss"] + 0.4 * max(0, 1 - (step - FIRST) / 14)}  # noqa: E731
    said = judged(record(tmp_path, *stopped(fades)))
    assert said.verdict == BROKEN and said.faded and "come back" in in_words(said, "run", "en")


@pytest.mark.parametrize(
    "shift, verdict", [(0.0, NOISE), (-0.25, BROKEN), (0.25, BROKEN)], ids=["goes on", "anew", "ahead"]
)
def test_the_epoch_without_repeated_steps(tmp_path, shift, verdict):
    moved = lambda step, row: {"train/epoch": row["train/epoch"] + shift}  # noqa: E731
    assert judged(record(tmp_path / "own", *stopped(moved))).verdict == verdict
    parts = stopped(moved)
    assert judged(foreign(tmp_path / "trainer_log.jsonl", *parts)).verdict == verdict  # two digits


def test_too_few_rows(tmp_path):
    assert judged(record(tmp_path / "few", *stopped(last=FIRST + 2))).verdict == FEW
    one = judged(record(tmp_path / "one", *killed(last=FIRST)))
    assert one.verdict == EXACT and "in 1 step made twice (" in in_words(one, lang="en")
    bare = [{"step": one["step"], "segment": 1, "train/loss": 1.0} for one in rows(FIRST, FIRST + 30, 1)]
    assert judged(record(tmp_path / "bare", [{**row(1), "segment": 0}], bare)).verdict in (FEW, NOTHING)


# several resumes


def test_a_resume_of_a_resume_and_one_from_an_older_checkpoint(tmp_path):
    """Each is judged, also where a later one has replaced its rows."""
    starts = (
        rows(1, 107, 0),
        rows(101, 150, 1),
        rows(101, 160, 2, off(0.3)),
        rows(51, 200, 3, off(0.3, since=101)),
    )
    said = continuity(read(record(tmp_path, *starts)))
    assert [(one.step, one.segment, one.verdict) for one in said] == [
        (101, 1, EXACT), (101, 2, BROKEN), (51, 3, EXACT),
    ]  # fmt: skip
    assert said[2].made_twice == 100


def test_nothing_is_trusted_of_a_foreign_throughput(tmp_path):  # RES-8
    log = foreign(tmp_path / "trainer_log.jsonl", *killed())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines[KILLED:]:
        line["throughput"] = 224413.0
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = read(log)
    assert judged(log).verdict == EXACT and not curves.has("system/tokens_per_sec") and not curves.has("throughput")


# random numbers that are known to be others


def test_other_random_numbers_explain_another_loss_of_the_same_samples(tmp_path):
    """NEFTune: all noise from step to step is theirs, and a second draw differs by 1.4 of it."""
    why = [{"part": "rng", "by": "checkpoint", "why": "rng_state.pth is missing"}]
    lost_rng = [{"step": CHECKPOINT, "kind": "resume", "segment": 1, "evidence": {"not_restored": why}}]
    redrawn = killed(lambda step, one: {"train/loss": row(step, 5)["train/loss"]})
    order = list(range(2 * END))
    same = [*batches(1, KILLED, 0, order), *batches(FIRST, END, 1, order)]
    other = [*batches(1, KILLED, 0, order), *batches(FIRST, END, 1, order[::-1])]
    said = judged(record(tmp_path / "redrawn", *redrawn, events=lost_rng, samples=same))
    assert (said.verdict, said.columns["loss"].status, lost(said)) == (NOISE, "within noise", {"rng": "checkpoint"})
    assert "no more than other random numbers (dropout, NEFTune) make of the same samples" in in_words(said, lang="en")
    assert judged(record(tmp_path / "unlogged", *redrawn, events=lost_rng)).verdict == NOISE
    assert judged(record(tmp_path / "restored", *redrawn, samples=same)).verdict == BROKEN
    assert judged(record(tmp_path / "samples", *redrawn, events=lost_rng, samples=other)).verdict == BROKEN
    seed = {"segments": [{"segment": 0}, {"segment": 1, "changed": [{"key": "config.given.seed", "a": 1, "b": 2}]}]}
    assert judged(record(tmp_path / "seed", *redrawn, events=lost_rng, run=seed)).verdict == BROKEN
    higher = killed(lambda step, one: {"train/loss": row(step, 5)["train/loss"] + 0.25})
    assert judged(record(tmp_path / "higher", *higher, events=lost_rng, samples=same)).verdict == BROKEN
