"""Data whose rows carry their own number in the text, and a witness of what the model was really given."""

import json
import re
from pathlib import Path

import torch
from tiny import WORDS
from transformers import TrainerCallback

NUMBER = re.compile(r"(\w+) row (\d+):")


def numbered_rows(name: str, count: int, whole: bool = False) -> list[dict]:
    """Rows of different lengths; row 3, 10, 17 ... has no answer, so that LlamaFactory drops it, but for `whole`."""
    rows = []
    for i in range(count):
        answer = " ".join(WORDS[(i + k) % len(WORDS)] for k in range(3 + i % 7))
        text = f"{name} row {i}: say {WORDS[i % len(WORDS)]}"
        rows.append({"instruction": text, "input": "", "output": None if i % 7 == 3 and not whole else answer})
    return rows


def numbered_data(folder: Path) -> Path:
    """A dataset folder for LlamaFactory: `one`, `two` (sft), `drawn`, `single` (num_samples of them), `pairs`, `votes`,
    `text`."""
    folder.mkdir(parents=True, exist_ok=True)
    one, two = numbered_rows("one", 40), numbered_rows("two", 30)
    whole = numbered_rows("one", 40, whole=True)
    files = {
        "one": one,
        "two": two,
        "pairs": [{**row, "chosen": row["output"], "rejected": "no no"} for row in one],
        "votes": [{**row, "label": i % 2 == 0} for i, row in enumerate(whole)],
        "text": [{"text": f"{row['instruction']} {row['output']}"} for row in whole],
    }
    for name, rows in files.items():
        (folder / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
    info = {
        "one": {"file_name": "one.json"},
        "two": {"file_name": "two.json"},
        "drawn": {"file_name": "one.json", "num_samples": 60},
        "single": {"file_name": "two.json", "num_samples": 1},
        "pairs": {
            "file_name": "pairs.json",
            "ranking": True,
            "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"},
        },
        "votes": {
            "file_name": "votes.json",
            "columns": {"prompt": "instruction", "query": "input", "response": "output", "kto_tag": "label"},
        },
        "text": {"file_name": "text.json", "columns": {"prompt": "text"}},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    return folder


#: a config's data set -> the name in the text of its rows
IN_TEXT = {"drawn": "one", "single": "two", "pairs": "one", "votes": "one", "text": "one"}


class Witness(TrainerCallback):
    """Decodes what reaches the model's forward pass: step -> micro-batches -> sequences -> [(name, number), ...].

    Attributes:
        seen: that.
        rows: of each row of the training set the same list.
    """

    def __init__(self):
        self.seen: dict[int, list[list[list[tuple[str, int]]]]] = {}
        self.rows: list[list[tuple[str, int]]] = []

    def on_train_begin(self, args, state, control, model=None, processing_class=None, train_dataloader=None, **kwargs):
        def read(ids) -> list[tuple[str, int]]:
            return [(name, int(number)) for name, number in NUMBER.findall(processing_class.decode(ids))]

        def look(module, arguments, named):
            if module.training and torch.is_grad_enabled():
                ids = named["input_ids"] if "input_ids" in named else arguments[0]
                self.seen.setdefault(state.global_step + 1, []).append([read(row) for row in ids.tolist()])

        self.handle = model.register_forward_pre_hook(look, with_kwargs=True)
        dataset = train_dataloader.dataset
        column = "chosen_input_ids" if "chosen_input_ids" in dataset.column_names else "input_ids"
        self.rows = [read(ids) for ids in dataset[column]]
        self.columns = dataset.column_names

    def on_train_end(self, *args, **kwargs):
        self.handle.remove()


class Shifted:
    """Within the block the collator shifts all labels of one batch (one per step) by `by`, which is a data fault."""

    def __init__(self, step: int | None, by: int = 1):
        self.step, self.by = step, by

    def __enter__(self):
        from llamafactory.data.collator import MultiModalDataCollatorForSeq2Seq as Collator

        self._collator, self._real, count = Collator, Collator.__call__, 0

        def collate(collator, features):
            nonlocal count
            count += 1
            batch = self._real(collator, features)
            if count == self.step:
                batch["labels"] = torch.roll(batch["labels"], -self.by, dims=1)
                batch["labels"][:, -1 if self.by > 0 else 0] = -100
            return batch

        Collator.__call__ = collate
        return self

    def __exit__(self, *error):
        self._collator.__call__ = self._real
