"""`samples` in a plain Trainer: labels that are moved, losses of one's own, rows that are no table, padding."""

import pytest
import torch

from llamafactory_obs import load_record, read_samples
from llamafactory_obs.samples.content import IGNORE


def plain_trainer(model, tmp_path, rows, compute_loss=None, cls="AutoModelForCausalLM", collator=None):
    import transformers

    class Own(transformers.Trainer):
        pass

    if compute_loss is not None:
        Own.compute_loss = compute_loss
    from llamafactory_obs import Samples

    arguments = transformers.TrainingArguments(
        tmp_path, max_steps=2, report_to="none", use_cpu=True, save_strategy="no", per_device_train_batch_size=2
    )
    network = model if isinstance(model, torch.nn.Module) else getattr(transformers, cls).from_pretrained(model)
    Own(network, arguments, train_dataset=rows, data_collator=collator, callbacks=[Samples()]).train()
    record = load_record(tmp_path)
    return record, [e for e in record.events if e["name"] == "samples" and e["title"] != "rows not known"]


def rows_with(shift: int) -> list[dict]:
    rows = []
    for i in range(8):
        ids = torch.arange(3 + i, 17 + i)
        labels = torch.full_like(ids, IGNORE)
        labels[4:10] = ids[4 + shift : 10 + shift]
        rows.append({"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)})
    return rows


def own_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
    """The loss of a trainer whose labels are moved already."""
    labels = inputs.pop("labels")
    logits = model(**inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)


def test_labels_that_are_the_next_token_for_the_usual_loss_are_a_fault(model, tmp_path):
    record, events = plain_trainer(model, tmp_path, rows_with(1))
    assert record.steps["data/labels_moved"] == [12, 12]
    assert [e["title"] for e in events] == ["labels_moved", "moved labels"] and events[0]["evidence"]["shift"] == 1


def test_the_same_labels_for_a_loss_of_one_s_own_may_be_right(model, tmp_path):
    record, events = plain_trainer(model, tmp_path, rows_with(1), own_loss)
    assert "data/labels_moved" not in record.steps
    assert [(e["kind"], e["title"]) for e in events] == [("unavailable", "labels not compared")]
    assert "Own's own loss" in events[0]["text"]


def test_other_wrong_labels_for_a_loss_of_one_s_own_are_a_fault(model, tmp_path):
    record, events = plain_trainer(model, tmp_path, rows_with(3), own_loss)
    assert record.steps["data/labels_moved"] == [12, 12]
    assert events[0]["title"] == "labels_moved" and events[0]["evidence"]["shift"] == 3


def test_a_masked_language_model_is_not_judged(tmp_path):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    record, events = plain_trainer(BertForMaskedLM(config), tmp_path, rows_with(1))
    assert "data/labels_moved" not in record.steps and [e["kind"] for e in events] == ["unavailable"]


# ---- other trainers, failures ---------------------------------------------------------------------------------------


def test_rows_that_are_no_table_are_logged_by_their_content(model, tmp_path):
    plain_trainer(model, tmp_path, rows_with(0))
    samples = [s for ranks in read_samples(tmp_path).values() for b in ranks[0] for s in b]
    assert len(samples) == 4 and all(s["row"] is None and s["sources"] is None for s in samples)
    assert all((s["tokens"], s["supervised"]) == (14, 6) for s in samples)
    notes = [e["title"] for e in load_record(tmp_path).events if e["name"] == "samples"]
    assert notes == ["rows not known"]


@pytest.mark.parametrize("mask", [True, False])
def test_three_meanings_of_tokens_are_kept_apart(model, tmp_path, mask):
    """MASK-7 on the batch of fact F16: 200 cells, 120 real tokens, 70 of them in the loss; also without a mask."""

    def collate(rows):
        ids = torch.zeros(2, 100, dtype=torch.long)
        labels = torch.full((2, 100), IGNORE)
        for i, (length, supervised) in enumerate(((20, 10), (100, 60))):
            ids[i, :length] = torch.arange(3, 3 + length)
            labels[i, length - supervised : length] = ids[i, length - supervised : length]
        return {"input_ids": ids, "labels": labels} | ({"attention_mask": (ids != 0).long()} if mask else {})

    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    from llamafactory_obs import LabelMask, Samples

    arguments = TrainingArguments(tmp_path, max_steps=1, report_to="none", use_cpu=True, save_strategy="no")
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(model),
        arguments,
        train_dataset=rows_with(0),
        data_collator=collate,
        processing_class=AutoTokenizer.from_pretrained(model),
        callbacks=[Samples(), LabelMask()],
    )
    trainer.train()
    record = load_record(tmp_path)
    counts = [record.steps[f"data/{name}"][0] for name in ("cells", "tokens", "supervised_tokens")]
    assert counts == [200, 120, 70]
    assert record.steps["data/supervised_ratio"] == [pytest.approx(70 / 120)]
    batch = read_samples(tmp_path)[1][0][0]
    assert [(s["tokens"], s["supervised"]) for s in batch] == [(20, 10), (100, 60)]
    said = [e["text"] for e in record.events if e["name"] == "samples" and e["title"] == "padding"]
    assert said == [] if mask else "pad token" in said[0]
