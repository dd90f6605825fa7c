"""The mask gate over LlamaFactory's own pipeline: injected faults by name, clean controls."""

import json

import pytest
from mask_config import CALL, CHAT, TOOLS, chat_model, failed, judge, talk, write  # noqa: F401
from tiny import WORDS, conversations

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.mask.gate import mask_gate
from llamafactory_obs.preflight.run_config import read_run_config

pytestmark = pytest.mark.usefixtures("llamafactory")


def test_a_clean_config_passes(judge, chat_model):
    report = judge(model=str(chat_model))
    gate = report.gate()
    assert gate["status"] == "pass" and gate["fix"] == "" and not report.causes
    status = {check.name: check.status for check in report.checks}
    assert status.pop("template_parity") == "warn", "this chat template knows no tools"
    assert set(status.values()) == {"pass"}


def test_the_usual_range_without_a_word(judge):
    (share,) = [check for check in judge(obs=None).checks if check.name == "share"]
    assert share.want == [0.2, 0.4] and share.status == ("pass" if 0.2 <= share.value <= 0.4 else "fail")


def test_wrong_template_by_tokens(judge):
    report = judge(template="llama3")
    assert {"vocabulary", "template_tokens"} <= failed(report)
    assert any("wrong template (llama3)" in cause for cause in report.causes) and not report.confirm


def test_wrong_template_by_parity(judge, chat_model):
    report = judge(model=str(chat_model), template="default")
    assert failed(report) == {"template_parity"}
    assert "first difference at token 0" in next(c.detail for c in report.checks if c.name == "template_parity")
    assert any("wrong template" in cause for cause in report.causes)


def test_another_default_system_text_is_shown_and_no_failure(judge, chat_model):
    """F17: the template's own system text stands where the chat template has none."""
    report = judge(model=str(chat_model), template="smollm2")
    parity = next(check for check in report.checks if check.name == "template_parity")
    assert parity.status == "warn" and "no system text: 106 tokens against 29, first" in parity.detail


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        ({"user_tag": "gpt", "assistant_tag": "human"}, {"rows_dropped", "role_tags"}),
        ({"observation_tag": "function_call", "function_tag": "observation"}, {"rows_dropped", "role_tags"}),
        ({"user_tag": "user", "assistant_tag": "assistant"}, {"columns"}),
        ({"role_tag": "role", "content_tag": "content"}, {"columns"}),
    ],
)
def test_swapped_and_wrong_tags(judge, tags, names):
    base = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}
    base |= {"observation_tag": "observation", "function_tag": "function_call"}
    rows = [talk(i) for i in range(12)]
    report = judge(data={"talks": (rows, {**CHAT, "tags": {**base, **tags}})})
    assert names <= failed(report) or (names == {"columns"} and "rows_dropped" in failed(report))
    assert any("wrong tags" in cause for cause in report.causes)
    assert not failed(judge(data={"talks": (rows, {**CHAT, "tags": base})})), "the control"


def test_swapped_columns(judge):
    swapped = {"columns": {"prompt": "output", "response": "instruction"}}
    assert failed(judge(data={"plain": (conversations(20), swapped)})) == {"role_tags"}
    assert not failed(judge(data={"plain": (conversations(20), {})}))


def test_train_on_prompt(judge):
    report = judge(train_on_prompt=True)
    assert failed(report) == {"share", "prompts_out"} and report.splits[0]["share"] == 1.0
    assert any("train_on_prompt" in cause for cause in report.causes) and report.confirm


def test_cutoff_that_beheads_answers(judge):
    report = judge(cutoff_len=80)
    assert {"answers_cut", "prompts_cut"} <= failed(report)
    keep = report.splits[0]["cutoff_for_99"]
    assert any(f"cutoff_len {keep} would keep" in check.detail for check in report.checks)
    assert any("cutoff_len 80 cuts answers" in cause for cause in report.causes)
    assert not failed(judge(cutoff_len=keep))


def test_a_call_cut_in_the_middle(judge):
    row = {"conversations": [{"from": "human", "value": "add"}, {"from": "function_call", "value": CALL}]}
    data = {"calls": ([row] * 5, {"formatting": "sharegpt", "columns": {"messages": "conversations"}})}
    report = judge(data=data, cutoff_len=40)
    assert "calls_cut" in failed(report)
    assert "calls_cut" not in failed(judge(data=data))


@pytest.mark.parametrize("last", [[], [{"from": "gpt", "value": ""}]], ids=["no assistant turn", "an empty answer"])
def test_a_row_without_an_answer(judge, last):
    rows = [talk(i) for i in range(12)]
    rows[7] = {"conversations": [{"from": "human", "value": "hello"}, *last], "tools": TOOLS}
    report = judge(data={"talks": (rows, CHAT)})
    assert failed(report) == {"rows_without_labels" if last else "rows_dropped"} and not report.confirm
    assert report.worst[0].number == 7, "the worst row first"
    if not last:
        assert "no assistant turn" in report.gate()["checks"][4]["detail"]
        assert "hello" in report.worst[0].pieces[0].text


def test_an_all_masked_data_set(judge):
    """Long answers to prompts a hundred times as long: LlamaFactory shares the room out and leaves the answers none."""
    rows = [{"instruction": "alpha " * 6000, "input": "", "output": "beta " * 50} for _ in range(6)]
    data = {"plain": (conversations(20), {}), "full": (rows, {})}
    report = judge(data=data, cutoff_len=64)
    assert {"all_masked", "rows_without_labels", "answers_cut"} <= failed(report) and not report.confirm
    assert "full (train)" in next(check.detail for check in report.checks if check.name == "all_masked")
    assert any("cutoff_len 64 cuts answers" in cause for cause in report.causes)
    assert {row.dataset for row in report.worst} == {"full"} and "nothing to learn from" in report.worst[0].faults
    assert not failed(judge(data={"plain": data["plain"]}, cutoff_len=64))


def test_a_full_mask_that_nobody_asked_for(judge):
    rows = [{"instruction": "", "input": "", "output": row["output"]} for row in conversations(8)]
    report = judge(data={"texts": (rows, {})}, template="empty", obs={"mask_range": [0.2, 1.0]})
    assert "all_trained" in failed(report) and not report.confirm and report.splits[0]["share"] == 1.0


def test_padding_in_the_loss(judge):
    assert failed(judge(ignore_pad_token_for_loss=False)) == {"padding_out"}


def test_a_row_that_llamafactory_cannot_encode(judge):
    rows = [talk(i) for i in range(4)]
    rows[2]["conversations"][1]["value"] = "no json"
    report = judge(data={"talks": (rows, CHAT)})
    assert failed(report) == {"rows_encode"} and "row 2 of talks" in report.checks[0].detail


def test_streaming_a_local_file_without_workers(judge):
    """LlamaFactory 0.9.5 makes 0 shards of it: nothing comes, the training ends in a StopIteration."""
    report = judge(streaming=True)
    assert failed(report) == {"columns"} and "dataloader_num_workers: 1" in report.gate()["fix"]


def test_stages_without_a_token_share_are_skipped(judge, data):
    for stage, name in (("rm", "pairs"), ("dpo", "pairs"), ("kto", "votes")):
        info = json.loads((data / "dataset_info.json").read_text())
        rows = json.loads((data / info[name]["file_name"]).read_text())
        entry = {key: value for key, value in info[name].items() if key != "file_name"}
        report = judge(data={name: (rows, entry)}, stage=stage)
        gate, detail = report.gate(), report.checks[0].detail
        assert gate["status"] == "skipped" and f"stage {stage}" in detail and "says nothing" in detail


@pytest.mark.parametrize("packing", [False, True])
def test_pretraining(judge, packing):
    data = {"text": (conversations(30), {"columns": {"prompt": "output"}})}
    report = judge(data=data, stage="pt", packing=packing, cutoff_len=32)
    assert not failed(report) and report.splits[0]["share"] == 1.0


def test_tokenized_rows_are_counted_but_not_explained(judge, write, tmp_path):
    from datasets import Dataset, DatasetDict

    rows = {"input_ids": [[3, 4, 5, 6]] * 3, "attention_mask": [[1] * 4] * 3, "labels": [[-100, -100, 5, 6]] * 3}
    DatasetDict({"train": Dataset.from_dict(rows)}).save_to_disk(tmp_path / "tokens")
    report = judge(tokenized_path=str(tmp_path / "tokens"))
    assert report.splits[0]["share"] == 0.5 and not failed(report)
    assert {c.name for c in report.checks if c.status == "skipped"} >= {"prompts_out", "answers_in", "ends_in"}
    full = {**rows, "labels": rows["input_ids"]}
    DatasetDict({"train": Dataset.from_dict(full)}).save_to_disk(tmp_path / "all")
    assert "all_trained" in failed(judge(tokenized_path=str(tmp_path / "all")))


def test_nothing_is_left_behind(judge, write, tmp_path):
    path = write(tokenized_path=str(tmp_path / "not_there"))
    before = sorted(one for one in tmp_path.rglob("*"))
    mask_gate(read_run_config(path))
    assert sorted(one for one in tmp_path.rglob("*")) == before
    from llamafactory.data import loader
    from llamafactory.data.template import TEMPLATES

    assert not hasattr(TEMPLATES["qwen3_nothink"], "to_ids")
    assert loader.align_dataset.__module__ == "llamafactory.data.converter"


def test_a_sample_is_spread_over_the_rows(judge):
    report = judge(samples=4)
    assert report.splits[0]["rows"] == 4
    assert sorted(row.number for row in judge(samples=4, show=4).worst) == [0, 3, 6, 9]


def test_the_confirming_line_repeats_the_overrides(write):
    path = write(obs={"mask_range": [0.01, 0.02]})
    report = mask_gate(read_run_config(path, ["cutoff_len=1000", "default_system=Be brief."]))
    words = "cutoff_len=1000 'default_system=Be brief.' --confirm mask"
    assert report.confirm == f"llamafactory-obs preflight {path} {words}"


def test_confirming_binds_to_the_data(judge, write, tmp_path):
    narrow = {"mask_range": [0.01, 0.02]}
    report = judge(obs=narrow)
    assert failed(report) == {"share"} and report.confirm.endswith("run.yaml --confirm mask")
    confirmed = judge(obs=narrow, accept=True)
    assert confirmed.gate()["status"] == "pass" and confirmed.confirmed
    again = judge(obs=narrow)
    assert again.gate()["status"] == "pass" and again.confirmed and "run.confirmed.json" in again.note
    other = [talk(i) for i in range(12)]
    other[3]["conversations"][-1]["value"] = f"still {WORDS[4]}"
    for change in ({"data": {"talks": (other, CHAT)}}, {"template": "qwen3"}, {"cutoff_len": 1000}):
        report = judge(obs=narrow, **change)
        assert "share" in failed(report) and "does not count any more" in report.note
    assert not failed(judge(obs=narrow))


def test_what_is_wrong_cannot_be_confirmed(judge, tmp_path):
    report = judge(template="llama3", accept=True)
    assert "vocabulary" in failed(report) and "cannot be accepted" in report.note
    assert not (tmp_path / "run.confirmed.json").exists()


def test_accepted_prompts_stay_visible(judge):
    report = judge(train_on_prompt=True, accept=True)
    assert report.gate()["status"] == "pass"
    assert "confirmed" in next(c.detail for c in report.checks if c.name == "prompts_out" and c.status == "warn")


def test_unusable_configs_are_one_line(write, judge, tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_run_config(tmp_path / "nope.yaml")
    with pytest.raises(ConfigError, match="Undefined dataset"):
        judge(dataset="nope")
    with pytest.raises(ConfigError, match="refuses"):
        judge(no_such_key=1)
    with pytest.raises(ConfigError, match="template"):
        judge(template="qwen33")
    with pytest.raises(ConfigError, match="no tokenizer"):
        judge(model=str(tmp_path / "nope"))
