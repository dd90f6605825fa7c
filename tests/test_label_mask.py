"""Token counts against a hand count of the very batches that the model was given (MASK-7, MASK-13, F16)."""

import pytest
import torch
from transformers import TrainerCallback

from llamafactory_obs import load_record
from llamafactory_obs.callbacks.batch_shape import segments_of
from llamafactory_obs.callbacks.label_mask import LabelMask


class Hand(TrainerCallback):
    """Counts, with plain Python loops, what the model's forward received while training."""

    def __init__(self):
        self.steps = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        def count(module, positional, batch):
            if not (module.training and torch.is_grad_enabled()):
                return
            while len(self.steps) <= state.global_step:
                self.steps.append({"cells": 0, "tokens": 0, "supervised": 0, "samples": 0, "longest": 0, "least": 1.0})
            step = self.steps[state.global_step]
            for labels, mask in zip(batch["labels"].tolist(), batch["attention_mask"].tolist(), strict=True):
                real, labelled = sum(mask), sum(label != -100 for label in labels)
                step["cells"] += len(mask)
                step["tokens"] += real
                step["supervised"] += labelled
                step["samples"] += 1
                step["longest"] = max(step["longest"], real)
                step["least"] = min(step["least"], labelled / real)

        model.register_forward_pre_hook(count, with_kwargs=True)

    def column(self, name):
        return [step[name] for step in self.steps]


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"gradient_accumulation_steps": 3},
        {"train_on_prompt": True},
        {"stage": "pt", "dataset": "text", "packing": False},
    ],
)
def test_counts_equal_the_hand_count(train, kind):
    hand = Hand()
    record = load_record(train(callbacks=["label_mask"], extra_callbacks=[hand], **kind))
    steps = record.steps
    assert steps["data/cells"] == hand.column("cells")
    assert steps["data/tokens"] == hand.column("tokens")
    assert steps["data/supervised_tokens"] == hand.column("supervised")
    assert steps["data/samples"] == hand.column("samples")
    assert steps["data/max_length"] == hand.column("longest")
    assert steps["data/min_supervised_ratio"] == pytest.approx(hand.column("least"))
    assert steps["data/supervised_ratio"] == pytest.approx(
        [s / t for s, t in zip(hand.column("supervised"), hand.column("tokens"), strict=True)]
    )
    assert steps["data/padding_ratio"] == pytest.approx(
        [1 - t / c for c, t in zip(hand.column("cells"), hand.column("tokens"), strict=True)]
    )


def test_padding_in_the_loss_is_counted_and_said(train):
    hand = Hand()
    record = load_record(train(callbacks=["label_mask"], ignore_pad_token_for_loss=False, extra_callbacks=[hand]))
    steps, labels = record.steps, hand.column("supervised")
    assert steps["data/supervised_tokens"] == labels, "what the loss is taken over"
    padded = [c - t for c, t in zip(hand.column("cells"), hand.column("tokens"), strict=True)]
    assert steps["data/supervised_padding"] == padded and sum(padded) > 0
    real = [(n - p) / t for n, p, t in zip(labels, padded, hand.column("tokens"), strict=True)]
    assert steps["data/supervised_ratio"] == pytest.approx(real)
    assert [e["title"] for e in record.events if e["kind"] == "alert"].count("padding in the loss") == 1


class Rows(TrainerCallback):
    """Keeps the rows of the data set that the Trainer holds."""

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.rows = list(train_dataloader.dataset)


@pytest.mark.parametrize("neat", [False, True])
def test_packed_conversations_are_counted_singly(train, neat):
    rows, plain = Rows(), Rows()
    out = train(
        callbacks=["label_mask"],
        packing=True,
        neat_packing=neat,
        cutoff_len=128,
        num_train_epochs=1,
        max_steps=-1,
        per_device_train_batch_size=1,
        extra_callbacks=[rows],
    )
    train(callbacks=["label_mask"], max_steps=1, extra_callbacks=[plain])
    steps = load_record(out).steps
    assert len(rows.rows) < len(plain.rows) == 48
    assert sum(steps["data/samples"]) == 48
    assert sum(steps["data/tokens"]) == sum(len(row["input_ids"]) for row in plain.rows)
    assert sum(steps["data/supervised_tokens"]) == sum(label != -100 for row in plain.rows for label in row["labels"])
    assert max(steps["data/max_length"]) == max(len(row["input_ids"]) for row in plain.rows)
    assert sum(steps["data/fully_masked"]) == 0 and min(steps["data/padding_ratio"]) >= 0


def test_alert_when_the_share_leaves_its_range(train):
    events = load_record(train(callbacks=["label_mask"], obs={"mask_range": [0.0, 0.1]})).events
    alerts = [e for e in events if e["kind"] == "alert"]
    assert [(e["title"], e["step"], e["level"]) for e in alerts] == [("supervised_ratio_high", 5, "warn")]
    quiet = load_record(
        train(callbacks=[{"label_mask": {"range": [0.1, 0.99]}}], obs={"mask_range": [0.0, 0.1]})
    ).events
    assert not [e for e in quiet if e["kind"] == "alert"], "the callback's own option is the closer one"


def test_pretraining_has_its_own_truth(train):
    record = load_record(train(callbacks=["label_mask"], stage="pt", dataset="text"))
    assert set(record.steps["data/supervised_ratio"]) == {1.0} and "data/truncated_ratio" not in record.steps
    assert not [e for e in record.events if e["kind"] == "alert"]


def test_truncation_is_counted(train):
    rows = Rows()
    steps = load_record(
        train(callbacks=["label_mask"], cutoff_len=36, extra_callbacks=[rows], num_train_epochs=1, max_steps=-1)
    ).steps
    cut = sum(len(row["input_ids"]) >= 36 for row in rows.rows)
    assert 0 < cut < 48 and sum(steps["data/truncated"]) == cut


@pytest.fixture
def plain_trainer(model, tmp_path):
    """A plain transformers Trainer on rows given as (input_ids, labels) lists."""
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    def make(rows, callbacks, collator=None):
        arguments = TrainingArguments(
            tmp_path / "hf",
            max_steps=2,
            report_to="none",
            use_cpu=True,
            save_strategy="no",
            per_device_train_batch_size=2,
            remove_unused_columns=False,
        )
        model_ = AutoModelForCausalLM.from_pretrained(model)
        Trainer(model_, arguments, train_dataset=rows, callbacks=callbacks, data_collator=collator).train()
        return load_record(tmp_path / "hf")

    return make


def test_a_sample_with_nothing_to_learn_from(plain_trainer):
    rows = [
        {"input_ids": torch.arange(8), "labels": torch.full((8,), -100) if i % 2 else torch.arange(8)} for i in range(8)
    ]
    record = plain_trainer(rows, [LabelMask()])
    assert sum(record.steps["data/fully_masked"]) >= 1
    masked = [e for e in record.events if e["title"] == "fully masked samples"]
    assert [e["kind"] for e in masked] == ["alert", "summary"] and masked[0]["level"] == "warn"


def test_without_labels_it_says_so_once(model, tmp_path):
    class Run:  # what the callback needs of a recorder
        trainer, events = None, []

        def event(self, *args, **kwargs):
            self.events.append(args)

    callback, run = LabelMask(), Run()
    from llamafactory_obs.callbacks.context import RunContext

    callback.run, callback.context = run, RunContext()
    callback.begin()
    for _ in range(3):
        callback.batch({"input_ids": torch.ones(2, 4)})
    assert [event[0] for event in run.events] == ["unavailable"]


def count(inputs, pad=None):
    segments = segments_of(inputs, pad)
    labelled = segments.per_sample((inputs["labels"] != -100) & segments.real)
    lengths = segments.per_sample(segments.real)
    return [(n, m) for n, m in zip(lengths.tolist(), labelled.tolist(), strict=True) if n], segments.note


IDS = torch.tensor([[5, 6, 7, 5, 6, 7, 8, 0, 0]])
LABELS = torch.tensor([[-100, 6, 7, -100, -100, 7, 8, -100, -100]])
POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 0]])


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [
        ({"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 1, 0, 0]])}, [(7, 4)]),
        ({"attention_mask": torch.ones(1, 9), "position_ids": POSITIONS}, [(3, 2), (4, 2)]),  # `packing`
        ({"attention_mask": None, "position_ids": POSITIONS}, [(3, 2), (4, 2)]),  # `neat_packing`, flash attention
        (
            {"attention_mask": torch.ones(1, 9), "position_ids": POSITIONS[:, :7]},
            [(3, 2), (4, 2)],
        ),  # ids padded further
        ({}, [(7, 4)]),  # the pad token decides
    ],
)
def test_layouts(extra, wanted):
    inputs = {"input_ids": IDS, "labels": LABELS, **extra}
    found, note = count(inputs, pad=0)
    assert found == wanted and bool(note) == (not extra)


def test_four_dimensional_mask():
    from llamafactory.data.collator import prepare_4d_attention_mask

    numbered = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1]])
    inputs = {"input_ids": IDS.repeat(2, 1), "labels": LABELS.repeat(2, 1)}
    inputs["attention_mask"] = prepare_4d_attention_mask(numbered, torch.float32)
    assert count(inputs)[0] == [(3, 2), (4, 2), (9, 4)]


def test_padding_never_dilutes_the_share():
    """F16: 2 x 100 cells, real lengths 20 and 100, 10 and 60 labels: 0.35 over cells, 0.583 over real tokens."""
    mask = torch.zeros(2, 100, dtype=torch.long)
    mask[0, :20], mask[1, :] = 1, 1
    labels = torch.full((2, 100), -100)
    labels[0, 10:20], labels[1, 40:] = 1, 1
    callback = LabelMask()
    callback._cutoff = None
    counts = callback._count(labels, segments_of({"input_ids": mask, "attention_mask": mask}, None)).tolist()
    assert counts == [200, 120, 70, 0, 2, 0, 0, 100, 0.5]
    values = {"data/cells": 200.0, "data/tokens": 120.0, "data/supervised_tokens": 70.0, "data/samples": 2.0}
    values["data/supervised_padding"] = 0.0
    callback.derive(values)
    assert values["data/supervised_ratio"] == pytest.approx(0.5833, abs=1e-4) and values["data/padding_ratio"] == 0.4
