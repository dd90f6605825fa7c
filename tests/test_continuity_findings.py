"""What the verdict rests on beside the rows, what `diagnose` and `timeline` make of it, and its words."""

import json
import math
import random
import string

import pytest
from continuity_logs import CHECKPOINT, END, KILLED, foreign, killed, record, rows, stopped

from llamafactory_obs.checkpoint.part import Expected
from llamafactory_obs.continuity.lacking import by_checkpoint
from llamafactory_obs.continuity.offline import continuity
from llamafactory_obs.continuity.said import BROKEN, EXACT, NOISE
from llamafactory_obs.continuity.words import in_words
from llamafactory_obs.diagnosis.command import as_dict
from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.logs.read import read
from llamafactory_obs.texts import texts
from llamafactory_obs.timeline.happened import happenings

FIRST = CHECKPOINT + 1
STATE = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


def off(by: float, since: int = FIRST):
    return lambda step, row: {"train/loss": row["train/loss"] + by} if step >= since else {}


def checkpoint(folder, without=(), more=()):
    """The files of a checkpoint by their names alone: nothing of them may be loaded."""
    folder.mkdir(parents=True)
    for name in {*STATE, *more} - {*without}:
        (folder / name).write_bytes(b"no pickle at all")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": CHECKPOINT}))
    return folder


@pytest.mark.parametrize(
    "without, more, ranks, parts",
    [
        ((), (), 1, []),
        (("optimizer.pt",), (), 1, ["optimizer", "scheduler"]),
        (("scheduler.pt",), (), 1, ["optimizer", "scheduler"]),
        (("rng_state.pth",), (), 1, ["rng"]),
        (STATE, (), 1, ["optimizer", "scheduler", "rng"]),
        (("rng_state.pth",), ("rng_state_0.pth",), 1, ["rng"]),  # RES-6: of another number of processes
        (("rng_state.pth",), ("rng_state_0.pth",), 2, ["rng"]),
        (("rng_state.pth",), ("rng_state_0.pth", "rng_state_1.pth"), 2, []),
    ],
)
def test_what_a_checkpoint_does_not_hold(tmp_path, without, more, ranks, parts):
    folder = checkpoint(tmp_path / "checkpoint-100", without, more)
    found = by_checkpoint(folder, Expected(CHECKPOINT, ranks=ranks))
    assert [one.part for one in found] == parts
    assert by_checkpoint(tmp_path / "nowhere", Expected(CHECKPOINT)) == []


def begun(lacks, segment=1, **more):
    """The event of a start whose checkpoint lacked something."""
    evidence = {"not_restored": [{"part": part, "by": by, "why": f"{part}.pt is missing"} for part, by in lacks]}
    event = {"step": CHECKPOINT, "kind": "resume", "segment": segment, "level": "warn", "name": "recorder"}
    return {**event, "title": "training resumes", "text": "", "evidence": evidence, **more}


def test_a_lost_state_is_no_continuation_whatever_the_numbers_say(tmp_path):
    said = continuity(read(record(tmp_path / "one", *killed(), events=[begun([("optimizer", "checkpoint")])])))[0]
    assert said.verdict == BROKEN and "the optimizer's state was not restored (optimizer.pt is missing)" in in_words(
        said, lang="en"
    )
    rng = continuity(read(record(tmp_path / "rng", *killed(), events=[begun([("rng", "checkpoint")])])))[0]
    assert rng.verdict == NOISE and "not visible in these numbers" in in_words(rng, lang="en")
    other = begun([("optimizer", "checkpoint")], segment=2)  # of another start
    assert continuity(read(record(tmp_path / "two", *killed(), events=[other])))[0].verdict == EXACT


def test_a_checkpoint_that_was_thinned_out_since_breaks_nothing_by_itself(tmp_path):
    """Of a foreign log only what lies there now is known: a likely cause, no verdict."""
    checkpoint(tmp_path / f"checkpoint-{CHECKPOINT}", without=("optimizer.pt",))
    log = foreign(tmp_path / "trainer_log.jsonl", *killed())
    assert continuity(read(log))[0].verdict == EXACT
    foreign(log, *killed(off(0.3)))
    said = continuity(read(log))[0]
    assert said.verdict == BROKEN and "as it is now: optimizer.pt is missing" in in_words(said, lang="en")


def changed(**settings):
    changes = [{"key": f"config.given.{name}", "a": a, "b": b} for name, (a, b) in settings.items()]
    return {"schema_version": 1, "segments": [{"segment": 0}, {"segment": 1, "changed": changes}]}


def test_settings_that_were_changed(tmp_path):  # RES-3
    run = changed(learning_rate=(5e-5, 2e-5), output_dir=("a", "b"))
    said = continuity(read(record(tmp_path / "rate", *killed(), run=run)))[0]
    assert said.verdict == EXACT
    assert "learning_rate was changed from 5e-05 to 2e-05, without effect" in in_words(said, lang="en")
    assert "output_dir" not in in_words(said, lang="en")
    longer = lambda step, row: {"train/lr": row["train/lr"] * 1.2}  # noqa: E731
    run = changed(max_steps=(200, 300), ignore_data_skip=(None, True))
    said = continuity(read(record(tmp_path / "steps", *killed(longer), run=run)))[0]
    assert said.verdict == BROKEN and "max_steps was changed from 200 to 300" in in_words(said, lang="en")
    assert "ignore_data_skip was changed from null to true" in in_words(said, lang="en")


def test_the_loss_of_reinforcement_learning_is_not_judged(tmp_path):
    path = record(tmp_path, *killed(off(3.0)))
    curves = read(path)
    curves.kind = "rl"
    assert continuity(curves)[0].columns["loss"].status == "unknown"


def test_numbers_that_are_none(tmp_path):
    nan = lambda step, row: {"train/loss": None, "train/grad_norm": None, "nonfinite": {"train/loss": "nan"}}  # noqa: E731
    path = record(tmp_path, *killed(nan))
    said = continuity(read(path))[0]
    json.dumps(said.as_dict(), allow_nan=False)
    assert said.verdict == BROKEN and in_words(said, lang="zh")


# one truth


def test_diagnose_says_it_once(tmp_path):
    said = judge(read(record(tmp_path, *killed(off(0.3)))))
    gaps = [one for one in said.findings if one.name == "resume_gap"]
    assert said.verdict == "resume_gap" and len(gaps) == 1 and gaps[0].evidence["since"] == FIRST
    assert gaps[0].evidence["steps_made_twice"] == 7 and gaps[0].evidence["parts_at"] == FIRST
    (resume,) = as_dict(said)["resumes"]
    assert resume["verdict"] == BROKEN and resume["columns"]["loss"]["first"] == FIRST


def test_a_level_that_both_starts_had_is_no_gap_of_the_resume(tmp_path):
    """The rows of steps 101 to 140 are harder, for the first start too; those around the resume say otherwise."""
    harder = lambda step, row: {"train/loss": row["train/loss"] + 0.3 * (step > CHECKPOINT)}  # noqa: E731
    starts = rows(1, END, 0, harder), rows(FIRST, END, 1, harder)
    said = judge(read(record(tmp_path / "own", *starts)))
    assert [one.verdict for one in said.resumes] == [EXACT] and not [f for f in said.findings if f.name == "resume_gap"]
    alone = judge(read(record(tmp_path / "alone", rows(1, CHECKPOINT, 0), starts[1])))
    assert [one.verdict for one in alone.resumes] == [BROKEN] and alone.verdict == "resume_gap"


def test_a_gap_of_an_older_run_in_the_same_log(tmp_path):
    again = rows(1, END, 0)
    log = foreign(tmp_path / "trainer_log.jsonl", *killed(off(0.3)), again)
    said = judge(read(log))
    assert [one.verdict for one in said.resumes] == [BROKEN] and said.verdict == "healthy"


def test_the_timeline_tells_it_once(tmp_path):
    good = read(foreign(tmp_path / "trainer_log.jsonl", *killed()))
    told = [one for one in happenings(good, judge(good).findings) if "continues" in one.text]
    assert [(one.step, one.kind) for one in told] == [(FIRST, "start")]
    live = {"step": 110, "kind": "continuity", "segment": 1, "level": "warn", "name": "continuity", "title": "verdict"}
    live |= {"text": "The resume does not continue.", "evidence": {"step": FIRST, "verdict": BROKEN}}
    bad = read(record(tmp_path / "bad", *killed(off(0.3)), events=[live]))
    told = [one for one in happenings(bad, judge(bad).findings) if "not continue" in one.text]
    assert [(one.step, one.kind) for one in told] == [(110, "warn")]


def test_healthy_resumes_are_quiet_and_faults_are_seen(tmp_path):
    """40 seeds, killed or stopped, each with a fault and without."""
    alarms, seen = 0, 0
    for seed in range(20):
        draw = random.Random(seed)
        factor = 1 + 0.002 * draw.random()
        noise = lambda step, row, f=factor: {"train/grad_norm": row["train/grad_norm"] * f}  # noqa: E731
        for start in (killed, stopped):
            path = tmp_path / f"{seed}{start.__name__}"
            alarms += judge(read(record(path / "good", *start(noise)))).verdict == "resume_gap"
            worse = off(0.3)
            seen += judge(read(record(path / "bad", *start(worse)))).verdict == "resume_gap"
    assert (alarms, seen) == (0, 40)


# words


def test_both_languages_have_the_same_texts():
    fields = [
        {key: {name for _, name, _, _ in string.Formatter().parse(entry) if name} for key, entry in one.items()}
        for one in (texts("continuity", "en"), texts("continuity", "zh"))
    ]
    assert fields[0] == fields[1]


@pytest.mark.parametrize(
    "change", [off(0.0), off(1e-3), off(0.3), off(math.inf)], ids=["same", "close", "other", "inf"]
)
def test_each_verdict_has_its_words(tmp_path, change):
    parts = killed(change)
    for part in parts[1]:
        if part["train/loss"] == math.inf:
            part |= {"train/loss": None, "nonfinite": {"train/loss": "inf"}}
    said = continuity(read(record(tmp_path, *parts)))[0]
    en, zh = in_words(said, "run", "en"), in_words(said, "run", "zh")
    assert en.startswith(f"The resume at step {FIRST}") and zh.startswith(f"第 {FIRST} 步")
    assert "{" not in en + zh and f"{KILLED - CHECKPOINT}" in zh
