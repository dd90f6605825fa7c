"""`control`: a real run commanded by another process; each command is known by its effect, beside a twin left alone."""

import math
import time

import pytest
import torch
from commander import Commander, control
from safetensors.torch import load_file

from llamafactory_obs import load_record

STEPS, RATE = 14, 1e-3


@pytest.fixture
def commanded(train, tmp_path):
    """`commanded(words by step, **config)`: the output folder and the replies."""

    def run(words, output_dir=None, hold=0.6, **overrides):
        output_dir = output_dir or tmp_path / "commanded"
        commander = Commander(output_dir, words, hold)
        config = {"callbacks": ["optimizer"], "max_steps": STEPS, "lr_scheduler_type": "cosine", **overrides}
        train(output_dir, [commander], **config)
        return output_dir, commander.replies()

    return run


def cosine(step: int, warm_up: int = 0) -> float:
    """The planned rate of an update, counted from 1."""
    done = step - 1
    if done < warm_up:
        return RATE * done / warm_up
    return RATE * 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (STEPS - warm_up)))


def of_kind(record, kind: str) -> list[dict]:
    return [event for event in record.events if event["kind"] == kind]


def test_each_command_has_its_effect_at_the_step_it_came_in(commanded):
    words = {
        3: ["--lr-scale", "0.5", "--save"],
        5: ["--eval"],
        7: ["--logging-steps", "1", "--lr-scale", "1"],
        9: ["--save-steps", "2", "--max-steps", "12"],
        10: ["--max-steps", "40"],
    }
    folder, replies = commanded(words, logging_steps=100, val_size=0.2)
    record = load_record(folder)
    for step, (code, reply) in replies.items():
        assert (code, reply["step"]) == (1 if step == 10 else 0, step), reply
    rates = dict(zip(record.steps["step"], record.steps["train/lr"], strict=True))
    wanted = {step: cosine(step) * (0.5 if step > 3 else 1) for step in range(1, 13)}
    assert {step: rate for step, rate in rates.items() if rate} == pytest.approx(wanted, rel=1e-9)
    scales = dict(zip(record.steps["step"], record.steps["train/lr_scale"], strict=True))
    assert [step for step, scale in scales.items() if scale == 0.5] == list(range(4, 13)) and scales[3] is None
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == [
        "checkpoint-10",
        "checkpoint-12",
        "checkpoint-3",
    ]
    assert [event["step"] for event in of_kind(record, "eval")] == [5, 12][: 1 + len(of_kind(record, "eval")) // 2]
    logged = [row["current_steps"] for row in _logs(folder) if "loss" in row]
    assert logged == [8, 9, 10, 11, 12]
    assert record.steps["step"][-1] == 12, "max_steps 12"
    done = {result["what"]: (result["status"], result["text"]) for _, r in replies.values() for result in r["results"]}
    assert done["save"] == ("done", f"{folder}/checkpoint-3 is saved") and done["eval"][1].startswith(
        "evaluated: eval_loss"
    )
    assert done["max_steps"][0] == "refused" and "started for 14 steps" in done["max_steps"][1]
    changes = [event for event in of_kind(record, "lr_change") if event["step"] > 1]
    assert [(event["step"], event["name"], event["title"]) for event in changes] == [(3, "control", "scaled")]
    assert changes[0]["evidence"]["by"] == "command" and "asked for by pid" in changes[0]["text"]
    assert not of_kind(record, "alert")
    assert [event["step"] for event in of_kind(record, "control")] == [3, 5, 7, 9, 10]
    assert {*_ids(record)} == {reply["id"] for _, reply in replies.values()}
    assert not list((folder / "obs/control/inbox").iterdir())


def _ids(record) -> list[str]:
    return [event["evidence"]["id"] for event in of_kind(record, "control")]


def _logs(folder) -> list[dict]:
    import json

    return [json.loads(line) for line in (folder / "trainer_log.jsonl").read_text().splitlines()]


def test_stop_saves_first_and_a_resume_goes_on_with_the_scaled_schedule(commanded, train, tmp_path):
    words = {4: ["--lr-scale", "0.25", "--logging-steps", "3"], 6: ["--stop"]}
    folder, replies = commanded(words, warmup_steps=2)
    code, reply = replies[6]
    assert code == 0 and [result["status"] for result in reply["results"]] == ["done", "done"], reply
    record = load_record(folder)
    assert record.steps["step"][-1] == 6 and (folder / "checkpoint-6" / "scheduler.pt").is_file()
    assert (folder / "model.safetensors").is_file(), "LlamaFactory still writes the final model"

    code, reply = control(folder, "--save")
    assert (code, reply["status"]) == (1, "no_job") and "ended after step 6" in reply["text"]
    assert not list((folder / "obs/control/inbox").iterdir()), "nothing is left that could fire later"

    config = {"callbacks": ["optimizer"], "max_steps": STEPS, "lr_scheduler_type": "cosine", "warmup_steps": 2}
    train(folder, resume_from_checkpoint=str(folder / "checkpoint-6"), **config)
    record = load_record(folder)
    rates = dict(zip(record.steps["step"], record.steps["train/lr"], strict=True))
    wanted = {step: cosine(step, 2) * (0.25 if step > 4 else 1) for step in range(1, STEPS + 1)}
    assert rates == pytest.approx(wanted, rel=1e-9)
    assert record.steps["train/lr_scale"] == [None] * 4 + [0.25] * 10
    assert not of_kind(record, "alert"), "no unexplained jump"
    logged = [row["current_steps"] for row in _logs(folder) if "loss" in row]
    assert logged == [9, 12], "the checkpoint keeps logging_steps"


def test_a_command_that_waits_is_carried_out_before_the_first_step_and_no_other_is(commanded, train, tmp_path):
    folder, _ = commanded({}, max_steps=4, save_steps=4)
    inbox = folder / "obs/control/inbox"
    (inbox / "left.json").write_text('{"order": {"stop": true}}')
    time.sleep(0.1)
    code, reply = control(folder, "--lr-scale", "0.5", "--queue")
    assert (code, reply["status"]) == (0, "queued") and len(list(inbox.iterdir())) == 2
    train(folder, callbacks=["optimizer"], max_steps=8, resume_from_checkpoint=str(folder / "checkpoint-4"))
    record = load_record(folder)
    assert record.steps["step"][-1] == 8, "the stop that was left behind is not carried out"
    assert record.steps["train/lr_scale"] == [None] * 4 + [0.5] * 4
    said = [(event["step"], event["title"]) for event in of_kind(record, "control")]
    assert said == [(4, "carried out"), (4, "not carried out")] and not list(inbox.iterdir())
    assert "while no job was running" in of_kind(record, "control")[1]["text"]

    # the same checkpoint once more: it has nothing of that
    train(folder, callbacks=["optimizer"], max_steps=8, resume_from_checkpoint=str(folder / "checkpoint-4"))
    assert "train/lr_scale" not in [key for key, value in load_record(folder).steps.items() if any(value[4:])]


def test_without_a_command_nothing_changes(train, tmp_path):
    config = {"max_steps": 5, "lr_scheduler_type": "cosine"}
    plain, watched = train(**config), train(callbacks=["grad_norm_spike"], obs={"control": {"auto": "stop"}}, **config)
    one, other = (load_file(folder / "model.safetensors") for folder in (plain, watched))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not (plain / "obs").exists() and load_record(watched).steps["step"] == [1, 2, 3, 4, 5]


def test_what_a_run_cannot_do_is_refused_with_the_reason(commanded):
    words = {2: ["--eval", "--save"], 3: ["--save-steps", "3", "--eval-steps", "2", "--max-steps", "1"]}
    _, replies = commanded(words, max_steps=4, save_strategy="no")
    assert replies[2][0] == 1 and replies[2][1]["status"] == "partly"
    assert [r["status"] for r in replies[2][1]["results"]] == ["refused", "done"]
    assert replies[3][1]["status"] == "refused"
    texts = " ".join(result["text"] for result in replies[3][1]["results"])
    for part in ("save_strategy is no", "eval_strategy is no", "use --stop"):
        assert part in texts
