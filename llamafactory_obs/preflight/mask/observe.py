"""Looking on while LlamaFactory's own dataset processor encodes a batch: what goes in, what comes out.

Nothing is encoded a second time, so looking on costs little; and the labels are LlamaFactory's own, not a copy of its
rules.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...samples.source_rows import DATASET, ROW
from .segments import COLUMNS, DROPPED, IGNORE, NotUnderstood, Rules, Segment, Turn, figures

_ROLES = {"user": "user", "observation": "tool", "assistant": "answer", "function": "call"}


class CannotEncode(Exception):
    """LlamaFactory raised on a row; the training would end there."""

    def __init__(self, dataset: int, row: int, why: str):
        super().__init__(dataset, row, why)
        self.dataset, self.row, self.why = dataset, row, why


@dataclass
class Notes:
    """What happened within one call of `_encode_data_example`."""

    head_slots: list = field(default_factory=list)  # slots that prefix and system text gave for the first turn
    head: int = 0  # their tokens
    turns: list[Turn] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)

    def clear(self) -> None:
        self.head_slots, self.head, self.turns, self.kept = [], 0, [], []


class _Slots:
    """A formatter of prefix or system text that remembers the slots it gave."""

    def __init__(self, formatter, notes: Notes):
        self._formatter, self._notes = formatter, notes

    def apply(self, **kwargs):
        slots = self._formatter.apply(**kwargs)
        self._notes.head_slots += slots
        return slots

    def __getattr__(self, name: str):
        if name.startswith("__") or name == "_formatter":
            raise AttributeError(name)
        return getattr(self._formatter, name)


def _observed(template, notes: Notes):
    """A copy of LlamaFactory's template that takes notes."""
    seen = copy.copy(template)
    kind = type(template)
    seen.format_prefix, seen.format_system = (
        _Slots(template.format_prefix, notes),
        _Slots(template.format_system, notes),
    )

    def to_ids(tokenizer, elements):
        given, notes.head_slots = notes.head_slots, []
        head = 0
        while head < min(len(given), len(elements)) and elements[head] is given[head]:
            head += 1
        if not head:
            return kind._convert_elements_to_ids(seen, tokenizer, elements)
        front = kind._convert_elements_to_ids(seen, tokenizer, elements[:head])
        notes.head = len(front)
        return front + kind._convert_elements_to_ids(seen, tokenizer, elements[head:])

    def encode_multiturn(tokenizer, messages, *args, **kwargs):
        pairs = kind.encode_multiturn(seen, tokenizer, messages, *args, **kwargs)
        for i, (source, target) in enumerate(pairs):
            asks, answers = messages[2 * i], messages[2 * i + 1]
            head = notes.head if i == 0 else 0
            empty = not str(answers["content"]).strip()
            turn = Turn(_ROLES[asks["role"]], _ROLES[answers["role"]], head, source, target, empty)
            notes.turns.append(turn)
        return pairs

    seen._convert_elements_to_ids, seen.encode_multiturn = to_ids, encode_multiturn
    return seen


@contextmanager
def _cuts_noted(notes: Notes) -> Iterator[None]:
    """LlamaFactory's `infer_seqlen` with its answers written down; put in place in whatever process this runs."""
    from llamafactory.data.processor import supervised

    original = supervised.infer_seqlen

    def infer(source_len: int, target_len: int, cutoff_len: int) -> tuple[int, int]:
        kept = original(source_len, target_len, cutoff_len)
        notes.kept.append(kept)
        return kept

    supervised.infer_seqlen = infer
    try:
        yield
    finally:
        supervised.infer_seqlen = original


class Conversations:
    """The function that is mapped over the aligned rows of an SFT data set; may run in another process.

    Args:
        processor: LlamaFactory's `SupervisedDatasetProcessor` or the packed one; its template is replaced by one that
            takes notes.
        rules: of the config.
    """

    def __init__(self, processor, rules: Rules):
        self._notes = Notes()
        self._rules = rules
        self._processor = copy.copy(processor)
        self._encode = processor._encode_data_example.__func__
        self._processor.template = _observed(processor.template, self._notes)

    def __call__(self, examples) -> dict[str, list]:
        """Per row, also of those that LlamaFactory drops: `{"dataset", "row", "figures": COLUMNS}`.

        Raises:
            CannotEncode: LlamaFactory raised.
            NotUnderstood: it made something else than it is known to make.
        """
        batch = {name: list(examples[name]) for name in examples}
        places = {id(prompt): i for i, prompt in enumerate(batch["_prompt"])}
        rows: list[list[int]] = [DROPPED] * len(places)

        def note(example: dict, ids: list[int], labels: list[int]) -> None:
            rows[places[id(example["prompt"])]] = figures(
                self._notes.turns, self._notes.kept, ids, labels, self._rules
            )[0]

        out = self._run(batch, note)
        self._check(rows, out)
        return {"dataset": batch[DATASET], "row": batch[ROW], "figures": rows}

    def view(self, example: dict) -> tuple[list[int], list[int], list[Segment]]:
        """Token ids, labels and segments of one row; empty lists for a row that LlamaFactory drops."""
        seen: list = [([], [], [])]

        def note(example: dict, ids: list[int], labels: list[int]) -> None:
            segments = figures(self._notes.turns, self._notes.kept, ids, labels, self._rules)[1]
            seen.append((list(ids), list(labels), segments))

        self._run({name: [value] for name, value in example.items()}, note)
        return seen[-1]

    def _run(self, batch: dict[str, list], note: Callable) -> dict[str, list]:
        def encode(**example):
            self._notes.clear()
            try:
                ids, labels = self._encode(self._processor, **example)
            except Exception as error:
                at = next(i for i, prompt in enumerate(batch["_prompt"]) if prompt is example["prompt"])
                why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                raise CannotEncode(batch[DATASET][at], batch[ROW][at], why) from None
            note(example, ids, labels)
            return ids, labels

        self._processor._encode_data_example = encode
        try:
            with _cuts_noted(self._notes):
                return self._processor.preprocess_dataset(batch)
        finally:
            del self._processor._encode_data_example

    @staticmethod
    def _check(rows: list[list[int]], out: dict[str, list]) -> None:
        """What goes to the Trainer holds exactly the labels that were counted."""
        supervised = COLUMNS.index("supervised")
        counted = sum(row[supervised] for row in rows)
        given = sum(len(labels) - labels.count(IGNORE) for labels in out.get("labels", []))
        if counted != given:
            raise NotUnderstood(f"{counted} labels were counted, LlamaFactory hands on {given}")


class Texts:
    """The same for `stage: pt`, where a row is a text, or with packing a block of texts: all of it is in the loss.

    The collator makes the labels: the tokens, without those that are the padding token.
    """

    def __init__(self, processor, rules: Rules):
        self._processor, self._rules = processor, rules

    def __call__(self, examples) -> dict[str, list]:
        """Per text or block; a block belongs to the data set and row of the batch's first text."""
        batch = {name: list(examples[name]) for name in examples}
        out = self._processor.preprocess_dataset(batch)["input_ids"]
        single = len(out) == len(batch[ROW])
        names = batch[DATASET] if single else batch[DATASET][:1] * len(out)
        numbers = batch[ROW] if single else batch[ROW][:1] * len(out)
        return {"dataset": names, "row": numbers, "figures": [self._figures(ids) for ids in out]}

    def view(self, example: dict) -> tuple[list[int], list[int], list[Segment]]:
        """See `Conversations.view`."""
        out = self._processor.preprocess_dataset({name: [value] for name, value in example.items()})["input_ids"]
        ids = out[0] if out else []
        return ids, self._labels(ids), [Segment("answer", 0, 0, len(ids), True)]

    def _labels(self, ids: list[int]) -> list[int]:
        pad = self._processor.tokenizer.pad_token_id
        return [IGNORE if token == pad else token for token in ids]

    def _figures(self, ids: list[int]) -> list[int]:
        turn = Turn("user", "answer", 0, [], ids, not ids)
        rules = Rules(stops=self._rules.stops, vocabulary=self._rules.vocabulary)
        return figures([turn], [(0, len(ids))], ids, self._labels(ids), rules)[0]
