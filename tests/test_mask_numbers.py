"""The mask gate's numbers against LlamaFactory's own labels, counted again."""

from pathlib import Path

import pytest
import yaml
from mask_config import CHAT, failed, judge, talk, write  # noqa: F401
from tiny import conversations

pytestmark = pytest.mark.usefixtures("llamafactory")


def counted_again(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Per split (tokens, labels) of each row, from LlamaFactory's own data set, by nothing of ours."""
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer

    given = {k: v for k, v in yaml.safe_load(path.read_text()).items() if k not in ("obs", "callbacks")}
    model_args, data_args, training_args, finetuning_args, _ = get_train_args({**given, "overwrite_cache": True})
    module = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(module["tokenizer"], data_args)
    sets = get_dataset(template, model_args, data_args, training_args, finetuning_args.stage, **module)
    found = {}
    for name, rows in (("train", sets.get("train_dataset")), ("eval", sets.get("eval_dataset"))):
        for part in rows.values() if isinstance(rows, dict) else [rows] if rows is not None else []:
            counts = []
            for row in part:
                real = [bool(m) for m in row["attention_mask"]]
                if "position_ids" in row:  # `packing`: padding has attention mask 1; a position 0 after another is one
                    end = len(real)
                    while end > 1 and row["position_ids"][end - 1] == row["position_ids"][end - 2] == 0:
                        end -= 1
                    while end > 1 and row["position_ids"][end - 1] == 0:
                        end -= 1
                    real = [on and i < end for i, on in enumerate(real)]
                counts.append((sum(real), sum(label != -100 for label in row["labels"])))
            found.setdefault(name, []).extend(counts)
    return found


TEMPLATES = ["qwen3", "qwen3_nothink", "llama3", "glm4", "mistral", "smollm2"]
KINDS = [
    {},
    {"mask_history": True},
    {"train_on_prompt": True},
    {"cutoff_len": 90},
    {"cutoff_len": 90, "mask_history": True},
    {"val_size": 0.25},
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_equal_llamafactorys_own_labels(judge, write, template, kind):
    if template == "glm4" and kind.get("train_on_prompt"):
        pytest.skip("LlamaFactory refuses train_on_prompt with this template")
    report = judge(template=template, show=0, **kind)
    truth = counted_again(write(template=template, **kind))
    assert {one["split"] for one in report.splits} == set(truth)
    for one in report.splits:
        rows = truth[one["split"]]
        assert (one["rows"], one["tokens"], one["supervised"]) == (
            len(rows),
            sum(tokens for tokens, _ in rows),
            sum(labels for _, labels in rows),
        )
        per_row = sorted(labels / tokens for tokens, labels in rows)
        assert (one["share_min"], one["share_max"]) == (per_row[0], per_row[-1])
        assert one["missing"] == one["altered"] == 0
        stray = one["stray"] if kind.get("mask_history") and template == "glm4" else 0
        assert one["stray"] == stray and one["expected_share"] == (one["supervised"] - stray) / one["tokens"]


@pytest.mark.parametrize(
    "kind",
    [
        {"packing": True, "cutoff_len": 600},
        {"packing": True, "neat_packing": True, "cutoff_len": 600},
        {"preprocessing_num_workers": 2},
        {"max_samples": 5},
        {"streaming": True, "dataloader_num_workers": 1, "buffer_size": 4},
        {"preprocessing_batch_size": 5},
    ],
    ids=str,
)
def test_ways_of_reading_count_the_same(judge, write, kind):
    (one,) = judge(show=0, **kind).splits
    rows = counted_again(write(**kind))["train"]
    assert (one["tokens"], one["supervised"]) == (sum(t for t, _ in rows), sum(n for _, n in rows))
    assert one["rows"] == (5 if "max_samples" in kind else 12), "conversations, also inside packed rows"


@pytest.mark.parametrize("strategy", ["concat", "interleave_under", "interleave_over"])
def test_several_data_sets_each_with_its_own_numbers(judge, write, strategy):
    data = {"talks": ([talk(i) for i in range(12)], CHAT), "plain": (conversations(20), {})}
    more = {} if strategy == "concat" else {"interleave_probs": "0.5,0.5"}
    report = judge(data=data, mix_strategy=strategy, **more)
    rows = counted_again(write(data=data, mix_strategy=strategy, **more))["train"]
    assert [one["dataset"] for one in report.datasets] == ["talks", "plain"]
    (whole,) = report.splits
    assert whole["rows"] == len(rows) and whole["supervised"] == sum(n for _, n in rows)
    assert sum(one["supervised"] for one in report.datasets) == whole["supervised"]
    assert report.datasets[0]["calls"] > 0 == report.datasets[1]["calls"]


def test_an_evaluation_set_of_its_own(judge):
    data = {"talks": ([talk(i) for i in range(12)], CHAT), "plain": (conversations(20), {})}
    for each in (False, True):
        report = judge(data=data, dataset="talks", eval_dataset="plain", eval_on_each_dataset=each)
        assert [(one["split"], one["dataset"]) for one in report.datasets] == [("train", "talks"), ("eval", "plain")]
        assert not failed(report) and "eval_share" in {check.name for check in report.checks}
