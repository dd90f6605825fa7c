"""When a batch counts as learned, and what is said where it does not: records made here, no training."""

import io
import json
import math

import pytest

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.overfit.causes import causes_of, causes_of_log
from llamafactory_obs.preflight.overfit.command import Request, add_options, request
from llamafactory_obs.preflight.overfit.outcome import FAILED, KNOWN, LEARNED, NOT_LEARNED, Cause, Outcome
from llamafactory_obs.preflight.overfit.rule import Rule
from llamafactory_obs.preflight.overfit.terminal import show, sparkline
from llamafactory_obs.record.reader import Layers, RunRecord

BATCH = [{"dataset": "orders", "row": 12, "length": 40}]
FULL = {"finetuning_type": "full", "learning_rate": 1e-5}


def record(losses, norms=None, ratio=5e-4, rate=1e-5, tokens=20, names=("layers.0", "layers.1"), trainable=100):
    count = len(losses)
    steps = {
        "step": list(range(1, count + 1)),
        "train/loss": losses,
        "train/grad_norm": [1.0] * count if norms is None else norms,
        "train/lr": [rate] * count,
        "data/supervised_tokens": [tokens] * count,
    }
    rows = [{"step": 10, "update_ratio": None if ratio is None else [ratio] * len(names)}]
    run = {"model": {"parameters": {"total": 100, "trainable": trainable}}}
    return RunRecord(None, run, steps, [], Layers(list(names), [], rows))


FLAT = [2.0] * 100


@pytest.mark.parametrize(
    ("case", "given", "name"),
    [
        (record(FLAT, tokens=0), FULL, "labels_masked"),
        (record(FLAT, trainable=0), FULL, "nothing_trainable"),
        (record(FLAT), {"finetuning_type": "lora"}, "lora_on_nothing"),
        (record([2.0, 2.0, math.nan, math.nan]), FULL, "not_finite"),
        (record([2.0] * 3, norms=[1.0, math.inf, 1.0]), FULL, "not_finite"),
        (record(FLAT, norms=[0.0] * 100), FULL, "no_gradient"),
        (record(FLAT, ratio=5e-11, rate=1e-12), FULL, "learning_rate"),
        (record(FLAT, ratio=0.0), FULL, "learning_rate"),
        (record(FLAT, rate=0.0), FULL, "learning_rate"),
        (record(FLAT, trainable=3), FULL, "frozen"),
        (record([2.0, 2.5, 3.5, 6.0, 5.0]), FULL, "learning_rate"),
        (record([2.0 * 0.99**i for i in range(100)]), FULL, "too_short"),
        (record(FLAT), FULL, "code_or_labels"),
        (record([2.0, 1.5] * 50), FULL, "code_or_labels"),
    ],
)
def test_each_cause_is_seen_and_comes_first(case, given, name):
    assert causes_of(case, given)[0].name == name


def test_a_healthy_looking_record_has_no_other_cause_than_the_last_resort():
    assert [cause.name for cause in causes_of(record([2.0, 1.9] * 50), FULL)] == ["code_or_labels"]


def test_the_rate_that_it_would_take():
    (cause,) = causes_of(record(FLAT, ratio=5e-11, rate=1e-12), FULL)
    assert "1e-05" in cause.fix, "ten million times as much moves the weights by 5e-4"
    lora = record(FLAT, ratio=None, names=("layers.0.lora_A", "layers.0.lora_B"))
    lora.layers.rows = [{"step": 10, "update_ratio": [1e-10, 0.5]}]
    (cause,) = causes_of(lora, {"finetuning_type": "lora"})
    assert cause.name == "learning_rate", "lora_B starts at 0: its ratio is large whatever the rate"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("ValueError: Target modules {'x'} not found in the base model.", "lora_on_nothing"),
        ("RuntimeError: element 0 of tensors does not require grad", "nothing_trainable"),
        ("ValueError: optimizer got an empty parameter list", "nothing_trainable"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "memory"),
    ],
)
def test_causes_of_a_training_that_broke_off(words, name):
    assert [cause.name for cause in causes_of_log([words], {})] == [name]
    assert causes_of_log(["KeyError: 'x'"], {}) == []


def test_a_tenth_is_wanted_but_not_of_what_is_known_by_heart():
    assert Rule.learned(2.0, 0.19) and not Rule.learned(2.0, 0.21)
    assert Rule.learned(0.06, 0.009) and not Rule.learned(0.06, 0.011)
    assert Rule.known(0.04) and not Rule.learned(0.04, 0.001), "a batch that was known shows nothing"
    assert not Rule.known(math.nan) and not Rule.learned(2.0, math.nan) and not Rule.learned(math.nan, 0.0)


def text_of(outcome, encoding="utf-8"):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    show(outcome, out)
    out.flush()
    return raw.getvalue().decode(encoding)


def test_the_verdict_for_people_and_programs():
    cause = Cause("learning_rate", "learning_rate 1e-12 moves nothing", "try --lr")
    cases = [
        (
            Outcome(LEARNED, BATCH, 500, 0.2, [2.0, 0.1], 1e-3, 9.0),
            0,
            True,
            "LEARNED: loss 2 -> 0.1 (under a tenth: 0.2)",
        ),
        (
            Outcome(NOT_LEARNED, BATCH, 500, 0.2, [2.0, 1.5], 1e-12, 9.0, [cause]),
            1,
            False,
            "75% of the first, wanted under 10%",
        ),
        (Outcome(LEARNED, BATCH, 500, 0.01, [0.06, 0.009], 1e-3, 9.0), 0, True, "(known by heart: 0.01)"),
        (Outcome(KNOWN, BATCH, 500, 0.01, [0.02], 1e-3, 9.0), 1, None, "NOT JUDGED"),
        (Outcome(FAILED, BATCH, 500, last_words=["KeyError: 'x'"]), 1, False, "FAILED: the training did not start"),
        (Outcome(NOT_LEARNED, BATCH, 500, 0.2, [2.0, math.nan], 1e-3), 1, False, "not finite"),
    ]
    for outcome, code, learned, words in cases:
        text, found = text_of(outcome), outcome.as_dict()
        assert words in " ".join(text.split()) and "--row 12" in text
        assert max(map(len, text.splitlines())) <= 80
        assert (outcome.exit_code, found["learned"]) == (code, learned)
        json.dumps(found, allow_nan=False)
        text_of(outcome, "ascii")


def test_the_batch_and_the_words_that_take_it_again():
    names = ("a", "a", "b/c")
    batch = [{"dataset": name, "row": i, "length": 40 + i} for i, name in enumerate(names)]
    text = text_of(Outcome(LEARNED, batch, 500, 0.2, [2.0, 0.1], 1e-3, 9.0))
    assert "batch  a rows 0, 1; b/c row 2 (40 to 42 tokens)\n" in text
    assert "again  --row a:0 --row a:1 --row b/c:2\n" in text
    same = text_of(Outcome(LEARNED, BATCH * 2, 500, 0.2, [2.0, 0.1], 1e-3, 9.0))
    assert "orders row 12 (40 tokens)\n" in same and "--row 12\n" in same
    many = [{"dataset": "orders", "row": 100 + i, "length": 40} for i in range(32)]
    lines = text_of(Outcome(LEARNED, many, 500, 0.2, [2.0, 0.1], 1e-3, 9.0)).splitlines()
    assert sum(len(line) > 80 for line in lines) == 1 and sum("--row" in line for line in lines) == 1, "to be copied"


def test_the_curve_in_one_line():
    assert sparkline([8.0, 4.0, 2.0, 1.0], 60, "01234567") == "7520"
    assert sparkline([2.0] * 200, 60) == "█" * 60, "it does not come down"
    assert sparkline([2.0, math.nan, 1.0], 60, "01") == "1x0"
    assert len(sparkline([float(i) for i in range(1, 501)], 60)) == 60


def test_words_that_make_no_sense_are_refused():
    import argparse

    parser = argparse.ArgumentParser()
    add_options(parser)

    def read(*words):
        return request(parser.parse_args(["run.yaml", *words]))

    assert isinstance(read("--row", "3", "--row", "a:4", "--lr", "1e-3"), Request)
    for words in (("--steps", "1"), ("--lr", "0"), ("--lr", "nan"), ("--row", "1", "--rows-longest")):
        with pytest.raises(ConfigError, match=words[0]):
            read(*words)
