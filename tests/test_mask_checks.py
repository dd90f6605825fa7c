"""The checks over plain numbers, the causes over plain rows."""

import numpy as np
import pytest

from llamafactory_obs.preflight.mask.causes import check_columns, check_tags, reasons, why_dropped
from llamafactory_obs.preflight.mask.checks import Context, check_numbers
from llamafactory_obs.preflight.mask.confirm import around
from llamafactory_obs.preflight.mask.segments import COLUMNS
from llamafactory_obs.preflight.mask.share import numbers
from llamafactory_obs.preflight.result import Check, as_gate, gate_status

#: a row of 100 tokens, 30 of them an answer and its end token, all right
GOOD = {
    "length": 100, "whole": 100, "supervised": 30, "due": 30, "learnable": 29, "spans": 1, "turns": 1, "taught": 1,
    "ends_due": 1, "ends_in": 1, "answers": 1, "user": 70, "answer": 29, "end": 1, "answer_in": 29, "end_in": 1,
}  # fmt: skip


def figures(*rows):
    return np.array([[{**GOOD, **row}.get(name, 0) for name in COLUMNS] for row in rows], dtype=np.int64)


def judged(*rows, reasons=None, **context):
    table = figures(*rows)
    one = {**numbers("train", "rows", table), **({"drop_reasons": reasons} if reasons else {})}
    given = {"vocabulary": 1000, **context}
    return {check.name: check for check in check_numbers([numbers("train", None, table)], [one], Context(**given))}


def failed(checks):
    return {name for name, check in checks.items() if check.status == "fail"}


def test_a_healthy_data_set_passes():
    checks = judged({}, {})
    assert not failed(checks) and gate_status(list(checks.values())) == "pass"
    assert checks["share"].value == 0.3 and checks["share"].want == [0.2, 0.4]


def test_shares_are_weighted_by_tokens():
    one = numbers("train", None, figures({}, {"length": 300, "whole": 300, "user": 270}))
    assert one["share"] == 60 / 400 and one["share_min"] == 0.1 and one["share_max"] == 0.3
    assert one["by_role"]["user"] == {"tokens": 340, "in_loss": 0}


def test_another_share_says_what_must_come_and_can_be_confirmed():
    check = judged({"length": 50, "whole": 50, "user": 20})["share"]
    assert check.status == "fail" and check.confirmable
    assert "must give 0.600" in check.detail and "every segment is right" in check.detail


def test_a_wrong_mask_cannot_be_confirmed():
    checks = judged({"supervised": 80, "stray": 50, "user_in": 50})
    assert not checks["share"].confirmable and "WRONG" in checks["share"].detail
    assert checks["prompts_out"].status == "fail" and not checks["prompts_out"].confirmable
    assert "user 50" in checks["prompts_out"].detail


NOTHING = {"supervised": 0, "missing": 30, "learnable": 0, "answer_in": 0, "end_in": 0, "ends_in": 0}
FULL = {"supervised": 30, "length": 30, "whole": 30, "user": 0}


@pytest.mark.parametrize(
    ("row", "name"),
    [(NOTHING, "all_masked"), (NOTHING, "rows_without_labels"), (FULL, "all_trained"), ({"outside": 2}, "vocabulary")],
)
def test_what_cannot_be_confirmed_away(row, name):
    check = judged(row)[name]
    assert check.status == "fail" and not check.confirmable
    assert judged({})[name].status == "pass"


def test_one_masked_row_among_many():
    checks = judged(*[{}] * 99, NOTHING)
    assert checks["rows_without_labels"].value == 1 and checks["all_masked"].status == "pass"
    assert checks["answers_in"].status == "fail"


def test_empty_answers_teach_nothing():
    assert judged({"empty": 1})["rows_without_labels"].value == 1


def test_asked_for_everything():
    checks = judged({**FULL, "user_in": 0}, train_on_prompt=True)
    assert checks["all_trained"].status == "pass" and checks["share"].status == "fail"


def test_cut_answers_fail_from_a_share_and_name_the_cutoff():
    cut = {"whole": 180, "answers_cut": 1, "ends_due": 0, "ends_in": 0}
    many = judged(*[{}] * 9, cut, cutoff_len=100)["answers_cut"]
    assert many.status == "fail" and many.value == 0.1 and many.fix == "cutoff_len: 180"
    few = judged(*[{}] * 99, cut, cutoff_len=100)["answers_cut"]
    assert few.status == "warn" and few.value == 0.01


def test_cut_calls():
    call = {"calls": 1, "answers": 0, "calls_cut": 1, "whole": 180, "ends_due": 0, "ends_in": 0}
    checks = judged(*[{}] * 9, call)
    assert checks["calls_cut"].status == "fail" and checks["calls_cut"].value == 1.0
    assert judged({})["calls_cut"].status == "skipped"


def test_cut_questions():
    assert judged({"prompts_cut": 1})["prompts_cut"].status == "fail"
    assert judged(*[{}] * 99, {"prompts_cut": 1})["prompts_cut"].status == "warn"


def test_the_cutoff_that_keeps_99_percent():
    rows = [{"whole": 100 + i} for i in range(200)]
    assert numbers("train", None, figures(*rows))["cutoff_for_99"] == 297, "198 of 200 rows are that long or shorter"


def test_missing_end_tokens():
    check = judged({"ends_in": 0})["ends_in"]
    assert check.status == "fail" and "never learn to stop" in check.detail


def test_padding_in_the_loss_comes_from_the_config():
    assert judged({}, pads_in_loss=True)["padding_out"].status == "fail"


def test_an_unknown_vocabulary_is_not_a_pass():
    checks = judged({}, vocabulary=None)
    assert checks["vocabulary"].status == "error" and gate_status(list(checks.values())) == "error"


def test_pretraining_wants_everything():
    text = {"supervised": 100, "due": 100, "answer": 100, "answer_in": 100, "user": 0, "learnable": 100}
    assert not failed(judged(text, stage="pt"))
    assert failed(judged({}, stage="pt")) == {"share"}


def test_no_rows_is_an_error():
    empty = numbers("train", None, figures()[:0].reshape(0, len(COLUMNS)))
    assert gate_status(check_numbers([empty], [], Context())) == "error" == gate_status([])


def test_dropped_rows():
    gone = {name: 0 for name in GOOD} | {"dropped": 1}
    checks = judged({}, gone, reasons={"no assistant turn": 1})
    assert checks["rows_dropped"].value == 1 and not checks["rows_dropped"].confirmable
    assert "1: no assistant turn" in checks["rows_dropped"].detail
    assert judged({}, gone, reasons={"no messages": 1})["rows_dropped"].confirmable


SHAREGPT = {
    "formatting": "sharegpt", "messages": "conversations", "role_tag": "from", "content_tag": "value",
    "user_tag": "human", "assistant_tag": "gpt", "observation_tag": "observation", "function_tag": "function_call",
    "system_tag": "system",
}  # fmt: skip
ALPACA = {"formatting": "alpaca", "prompt": "instruction", "query": "input", "response": "output"}


def talk(*roles):
    return {"conversations": [{"from": role, "value": "x"} for role in roles]}


@pytest.mark.parametrize(
    ("row", "attributes", "why"),
    [
        (talk("human"), SHAREGPT, "no assistant turn"),
        (talk("system", "human"), SHAREGPT, "no assistant turn"),
        (talk("human", "bot"), SHAREGPT, "role 'bot' is in no tag"),
        (talk("human", "gpt", "human"), SHAREGPT, "ends without an answer"),
        (talk("gpt", "human"), SHAREGPT, "begins with 'gpt'"),
        (talk("human", "human", "gpt", "gpt"), SHAREGPT, "do not alternate"),
        (talk(), SHAREGPT, "no messages"),
        (talk("human", "gpt"), {**SHAREGPT, "user_tag": "gpt", "assistant_tag": "human"}, "begins with 'human'"),
        ({"instruction": "a", "output": None}, ALPACA, "no assistant turn"),
        (None, SHAREGPT, "not known"),
    ],
)
def test_why_a_row_is_dropped(row, attributes, why):
    assert why in why_dropped(row, attributes)


def test_reasons_are_counted():
    assert reasons([talk("human"), talk("human"), talk()], SHAREGPT) == {"no assistant turn": 2, "no messages": 1}


@pytest.mark.parametrize(
    ("change", "attributes"),
    [
        ({"user_tag": "gpt", "assistant_tag": "human"}, SHAREGPT),
        ({"observation_tag": "function_call", "function_tag": "observation"}, SHAREGPT),
        ({"prompt": "output", "response": "instruction"}, ALPACA),
    ],
)
def test_swapped_names(change, attributes):
    assert check_tags([("rows", {**attributes, **change})]).status == "fail"
    assert check_tags([("rows", attributes)]).status == "pass"
    assert check_tags([("rows", {**attributes, "user_tag": "kunde", "assistant_tag": "wir"})]).status == "pass"


def test_columns_are_named():
    row = {"messages": [{"role": "user", "content": "x"}]}
    check = check_columns("rows", row, {**SHAREGPT, "messages": "messages"}, "KeyError: 'from'", False)
    assert check.status == "fail" and check.value == "from, value" and "role, content" in check.detail
    check = check_columns("rows", {"text": "x"}, ALPACA, "KeyError: 'instruction'", False)
    assert "instruction" in check.value and "text" in check.detail
    assert "dataloader_num_workers" in check_columns("rows", {}, ALPACA, "StopIteration", True).fix


def test_a_confirmed_range_holds_the_share():
    assert around(0.581) == (0.53, 0.64) and around(0.99)[1] == 1.0 and around(0.01)[0] == 0.0


def test_the_gate_takes_the_worst_and_the_first_fix():
    checks = [Check("a", "pass", 1, 1, ""), Check("b", "warn", 1, 1, ""), Check("c", "fail", 1, 0, "x", "do this")]
    gate = as_gate("mask", checks)
    assert gate["status"] == "fail" and gate["fix"] == "do this" and len(gate["checks"]) == 3
    assert set(gate["checks"][0]) == {"name", "status", "value", "want", "detail"}
    assert as_gate("mask", checks[:2])["status"] == "pass"
    assert gate_status([Check("a", "skipped", None, None, "")]) == "skipped"
