"""Two gloo processes: an order is carried out by both at the end of the same step, and no later than the next one."""

import json

import pytest
from test_ranks import two  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow
STEPS = 14


def test_both_ranks_obey_at_the_same_step(two):  # noqa: F811
    commands = {4: ["--lr-scale", "0.5"], 7: ["--eval"], 9: ["--stop", "--lr-scale", "0.5"]}
    options = {"lr_scheduler_type": "linear", "val_size": 0.2}
    record, done = two(callbacks=["ranks"], max_steps=STEPS, extra={"commands": commands}, **options)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(('{"rank"', '{"replies"'))]
    replies = next(item["replies"] for item in found if "replies" in item)
    rates = {item["rank"]: item["rates"] for item in found if "rank" in item}
    assert set(rates) == {0, 1} and rates[0] == rates[1]
    for step, (_, reply) in replies.items():
        assert reply["step"] == int(step), "it came before the update of this step"
        assert reply["status"] == ("done" if step != "9" else reply["status"])
    wanted = {step: 1e-3 * (1 - (step - 1) / STEPS) * (0.5 if step > 4 else 1) for step in range(1, 10)}
    assert {int(step): rate for step, rate in rates[0].items()} == pytest.approx(wanted)
    assert record.steps["step"][-1] == 9 and (record.folder.parent / "checkpoint-9").is_dir()
    kinds = [event["kind"] for event in record.events]
    assert kinds.count("control") == 3 and "callback_off" not in kinds and "alert" not in kinds
    assert record.steps["train/lr_scale"] == [None] * 4 + [0.5] * 5
