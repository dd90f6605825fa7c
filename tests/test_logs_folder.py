"""Folders: our record first, else LlamaFactory's files joined; settings and checkpoints beside them; the clock."""

import json
import math
from itertools import pairwise

import pytest

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.logs.read import read
from llamafactory_obs.record.schema import encode


def lines(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def log_row(step, passed, **more):
    row = {"current_steps": step, "total_steps": 100, "loss": round(2 / step, 4), "lr": 1e-4, "epoch": step / 50}
    return row | {"elapsed_time": f"0:{passed // 60:02}:{passed % 60:02}"} | more


def state(file, steps, **more):
    file.parent.mkdir(parents=True, exist_ok=True)
    history = [{"step": s, "loss": round(2 / s, 4), "learning_rate": 1e-4, "grad_norm": s / 10} for s in steps]
    file.write_text(json.dumps({"log_history": history, "max_steps": 100, "global_step": max(steps)} | more))


def record_rows(steps, segment, **more):
    for step in steps:
        yield {"step": step, "time": 1.8e9 + step, "segment": segment, "train/loss": 2.0 / step, **more}


def write_record(folder, rows, events=(), run=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steps.jsonl").write_bytes(b"".join(map(encode, rows)))
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    if run is not None:
        (folder / "run.json").write_bytes(encode(run))


def test_times_of_the_log_and_norms_of_the_state_become_one(tmp_path):
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, 40 * s) for s in range(1, 11)])
    state(tmp_path / "trainer_state.json", range(1, 11))
    found = read(tmp_path)
    assert found.source == "trainer_log" and found.path == tmp_path
    assert found.points("train/grad_norm")[1] == pytest.approx([s / 10 for s in range(1, 11)])
    assert set(found.points("time/per_step_s")[1]) == {40.0}
    assert found.notes[0] == "joined trainer_log.jsonl and trainer_state.json"


def test_the_state_of_the_newest_checkpoint_serves_while_the_run_goes_on(tmp_path):
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, 40 * s) for s in range(1, 21)])
    state(tmp_path / "checkpoint-5" / "trainer_state.json", range(1, 6))
    state(tmp_path / "checkpoint-10" / "trainer_state.json", range(1, 11))
    (tmp_path / "checkpoint-15").mkdir()  # not written yet
    found = read(tmp_path)
    assert found.points("train/grad_norm")[0] == list(range(1, 11)) and len(found) == 20
    assert list(found.checkpoints) == [5, 10, 15] and found.checkpoints[10] == tmp_path / "checkpoint-10"
    alone = read(tmp_path / "checkpoint-10")
    assert len(alone) == 10 and list(alone.checkpoints) == [5, 10, 15]
    assert list(read(tmp_path / "checkpoint-5" / "trainer_state.json").checkpoints) == [5, 10, 15]


def test_a_state_of_another_run_is_not_joined(tmp_path):
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, 40 * s, loss=9.0) for s in range(1, 21)])
    state(tmp_path / "trainer_state.json", range(1, 11))
    found = read(tmp_path)
    assert not found.has("train/grad_norm") and "different runs" in found.notes[-1]


def test_a_broken_file_beside_a_good_one_is_a_note(tmp_path):
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, s) for s in range(1, 9)])
    (tmp_path / "trainer_state.json").write_bytes(b"")
    found = read(tmp_path)
    assert len(found) == 8 and "empty" in found.notes[-1]


def test_a_folder_without_a_log_says_what_was_looked_for(tmp_path):
    (tmp_path / "README.txt").write_text("nothing\n")
    with pytest.raises(ConfigError, match=r"looked for obs/steps.jsonl, trainer_log.jsonl, trainer_state.json"):
        read(tmp_path)


def test_one_file_with_another_name_is_found_and_two_are_asked_about(tmp_path):
    rows = [{"step": s, "loss": 1.0} for s in range(1, 9)]
    lines(tmp_path / "my run.out", rows)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    found = read(tmp_path)
    assert len(found) == 8 and found.notes == ["read from my run.out"]
    lines(tmp_path / "other.log", rows)
    with pytest.raises(ConfigError, match="2 logs here"):
        read(tmp_path)


def test_settings_beside_a_log(tmp_path):
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, s) for s in range(1, 9)])
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x02 a pickle that must not be opened")
    card = "# x\n### Training hyperparameters\n\n- learning_rate: 0.0001\n- train_batch_size: 2\n"
    card += "- lr_scheduler_type: SchedulerType.COSINE\n- optimizer: Use adamw\n\n### Framework versions\n- seed: 7\n"
    (tmp_path / "README.md").write_text(card)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"]}')
    found = read(tmp_path)
    assert found.settings == {
        "learning_rate": 0.0001, "per_device_train_batch_size": 2, "lr_scheduler_type": "cosine",
        "finetuning_type": "lora", "lora_rank": 8, "lora_target": ["q_proj"],
    }  # fmt: skip
    (tmp_path / "training_args.yaml").write_text("learning_rate: 5.0e-05\nstage: dpo\n")
    found = read(tmp_path / "trainer_log.jsonl")
    assert (found.settings["learning_rate"], found.kind) == (5e-05, "preference")
    (tmp_path / "training_args.yaml").write_text("a: [\n")
    assert read(tmp_path).settings["learning_rate"] == 0.0001


def test_our_record_comes_first_and_its_segments_are_the_breaks(tmp_path):
    rows = [*record_rows(range(1, 9), 0), *record_rows(range(5, 11), 1, **{"train/loss": 5.0})]
    rows[2] |= {"train/grad_norm": math.nan, "train/lr": math.inf}
    rows.insert(4, {"step": 4, "time": 1.0, "segment": 0, "eval/loss": 0.5})
    start = {"step": 0, "time": 1.0, "segment": 0, "kind": "start", "evidence": {"max_steps": 20}}
    run = {"config": {"given": {"lr": 1}, "resolved": {"a": {"stage": "sft", "seed": 1}, "b": {"max_steps": 20}}}}
    write_record(tmp_path / "obs", rows, [start], run)
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, s) for s in range(1, 9)])
    (tmp_path / "checkpoint-4").mkdir()
    for path in (tmp_path, tmp_path / "obs", tmp_path / "obs" / "steps.jsonl"):
        found = read(path)
        assert (found.source, list(found.steps), found.max_steps, found.path) == ("obs", list(range(1, 11)), 20, path)
        assert [(b.kind, b.row, b.evidence["why"]) for b in found.breaks] == [
            ("resume", 4, "another segment; the step falls")
        ]
        assert found.overlaps == [(5, 0.4, 5.0), (6, 2.0 / 6, 5.0), (7, 2.0 / 7, 5.0), (8, 0.25, 5.0)]
        assert math.isnan(found.columns["train/grad_norm"][2]) and found.columns["train/lr"][2] == math.inf
        assert found.points("eval/loss") == ([4], [0.5])
        assert found.settings == {"stage": "sft", "seed": 1, "max_steps": 20}
        assert (found.events, list(found.checkpoints), found.logging_steps) == ([start], [4], 1)


def test_a_resume_in_our_record_is_never_a_restart(tmp_path):
    """The record began at a resume from step 100; the next resume is from a checkpoint before that."""
    write_record(tmp_path, [*record_rows(range(101, 111), 0), *record_rows(range(51, 61), 1)])
    found = read(tmp_path)
    assert list(found.steps) == list(range(51, 61)) and [b.kind for b in found.breaks] == ["resume"]


def test_a_record_without_steps_gives_its_events_to_the_logs_beside(tmp_path):
    folder = tmp_path / "obs"
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(encode({"step": 0, "time": 1.0, "segment": 0, "kind": "start"}))
    lines(tmp_path / "trainer_log.jsonl", [log_row(s, s) for s in range(1, 9)])
    found = read(tmp_path)
    assert (found.source, len(found), len(found.events)) == ("trainer_log", 8, 1)


def test_a_torn_record(tmp_path):
    write_record(tmp_path, record_rows(range(1, 9), 0))
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('{"step": "x"}\n[1]\n{"step": 9, "nonfinite": 3, "segment": 0}\n{"step": 1')
    found = read(tmp_path)
    assert len(found) == 8 and found.notes == ["4 torn lines skipped"]


def test_a_clock_of_whole_seconds_is_not_taken_for_speed(tmp_path):
    """0.7 s a step, told in whole seconds: no row may be off by more than the promised share."""
    rows = [log_row(s, int(0.7 * s)) for s in range(1, 301)]
    found = read_log(tmp_path, rows)
    steps, speed = found.points("time/per_step_s")
    assert len(steps) >= 8 and all(abs(value - 0.7) <= 0.05 * 0.7 for value in speed)
    assert all(b - a >= 20 for a, b in pairwise(steps))


def read_log(tmp_path, rows):
    lines(tmp_path / "log.jsonl", rows)
    return read(tmp_path / "log.jsonl")


def test_throughput_after_a_resume_is_not_believed(tmp_path):
    """RES-8, F10: LlamaFactory divides all tokens, also those before the resume, by the seconds since it."""
    first = [log_row(s, 40 * s, throughput=100.0, total_tokens=4000 * s) for s in range(1, 11)]
    again = [
        log_row(s, 40 * (s - 10), throughput=round(4000 * s / (40 * (s - 10)), 2), total_tokens=4000 * s)
        for s in range(11, 21)
    ]
    assert again[0]["throughput"] == 1100.0
    found = read_log(tmp_path, first + again)
    assert [b.kind for b in found.breaks] == ["resume"]
    assert found.points("system/tokens_per_sec")[1] == pytest.approx([100.0] * 18, rel=1e-3)
    assert found.points("system/session_tokens_per_sec") == (list(range(1, 11)), [100.0] * 10)
    assert any("throughput" in note for note in found.notes)


def test_a_throughput_too_coarse_for_a_clock_is_not_taken_for_one(tmp_path):
    """0.5 tokens/s, to two digits: after 50 minutes the clock made of it would be off by half a minute."""
    rows = [log_row(s, 60 * s, throughput=round(31 / 60, 2), total_tokens=31 * s) for s in range(1, 51)]
    assert set(read_log(tmp_path, rows).points("time/per_step_s")[1]) == {60.0}


def test_throughput_tells_the_time_where_nothing_else_does(tmp_path):
    rows = [{"step": s, "loss": 1.0, "total_tokens": 500 * s, "throughput": 250.0} for s in range(1, 9)]
    found = read_log(tmp_path, rows)
    assert found.points("time/elapsed_s")[1] == [2.0 * s for s in range(1, 9)]
