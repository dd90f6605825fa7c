"""LlamaFactory's dataset processor with one more column in its output: which source rows each row is made of."""

import copy
from itertools import pairwise

import numpy as np

from .source_rows import DATASET, ROW

#: column of a tokenized row: data set and row number of each conversation (or text) in it, flat:
#: `[dataset, row, dataset, row, ...]`
SOURCES = "_obs_sources"
#: in place of it where that cannot be told; never an empty list, whose type Arrow would not know
UNKNOWN = (-1, -1)


class Carrying:
    """Stands in for a `DatasetProcessor` whose rows have the columns of `source_rows`; may run in another process.

    The rows are those that the processor makes: it is run as it is, and what `_encode_data_example` returned is found
    again in what came out, whatever was dropped or packed between.

    Args:
        processor: LlamaFactory's.
    """

    def __init__(self, processor):
        self._processor = processor

    def preprocess_dataset(self, examples) -> dict[str, list]:
        """What is mapped over the aligned rows."""
        batch = {name: list(examples[name]) for name in examples}
        processor = copy.copy(self._processor)
        watch = (_Encoded if hasattr(processor, "_encode_data_example") else _Texts)(processor)
        out = processor.preprocess_dataset(batch)
        count = len(next(iter(out.values()), []))
        try:
            rows = watch.rows(batch, out)
            tags = list(zip(batch[DATASET], batch[ROW], strict=True))
            sources = [[number for row in made for number in tags[row]] or list(UNKNOWN) for made in rows]
            if len(sources) != count:
                raise ValueError("not one list of rows for each row")
        except Exception:  # another LlamaFactory: its rows are right, only their sources are not known
            sources = [list(UNKNOWN)] * count
        return {**out, SOURCES: sources}

    def print_data_example(self, example) -> None:
        self._processor.print_data_example(example)


class _Encoded:
    """Conversations: one call of `_encode_data_example` each."""

    def __init__(self, processor):
        self._seen: list[tuple[object, list[int], object]] = []
        encode = processor._encode_data_example

        def noted(*args, **kwargs):
            result = encode(*args, **kwargs)
            prompt = args[0] if args else kwargs.get("prompt")
            self._seen.append((prompt, result[0], result[1]))
            return result

        processor._encode_data_example = noted

    def rows(self, batch: dict, out: dict) -> list[list[int]]:
        """The places in `batch` that each row of `out` is made of; an empty list where that is not known."""
        places = {id(prompt): place for place, prompt in enumerate(batch["_prompt"])}
        made = [(places[id(prompt)], ids, labels) for prompt, ids, labels in self._seen]
        if "position_ids" in out:
            return self._packed(made, out)
        found = out.get("input_ids", out.get("chosen_input_ids", []))
        if [ids for _, ids, _ in made] != list(found):
            raise ValueError("the rows are not those that were encoded, in their order")
        return [[place] for place, _, _ in made]

    @staticmethod
    def _packed(made: list[tuple], out: dict) -> list[list[int]]:
        """Each packed row is cut where its positions start anew, and the pieces are looked up by their content.

        Of equal conversations LlamaFactory packs the last one first.
        """
        open_: dict[tuple, list[int]] = {}
        for place, ids, labels in made:
            open_.setdefault((tuple(ids), tuple(labels)), []).append(place)
        rows = []
        for ids, labels, positions in zip(out["input_ids"], out["labels"], out["position_ids"], strict=True):
            starts = [i for i, position in enumerate(positions) if position == 0] + [len(positions)]
            pieces = [(tuple(ids[a:b]), tuple(labels[a:b])) for a, b in pairwise(starts)]
            found = [open_[piece].pop() for piece in pieces if open_.get(piece)]
            padding = sum(len(piece[0]) == 1 for piece in pieces)
            rows.append(found if len(found) >= len(pieces) - padding else [])
        return rows


class _Texts:
    """`stage: pt`: texts, or with packing blocks of them, cut from all texts of the batch put together."""

    def __init__(self, processor):
        self._lengths: list[int] = []
        self._packing, self._block = processor.data_args.packing, processor.data_args.cutoff_len
        processor.tokenizer = _Counting(processor.tokenizer, self._lengths)

    def rows(self, batch: dict, out: dict) -> list[list[int]]:
        count = len(out["input_ids"])
        if not self._packing:
            return [[place] for place in range(count)]
        ends = np.cumsum(self._lengths)
        first = np.searchsorted(ends, np.arange(count) * self._block, side="right")
        last = np.searchsorted(ends, (np.arange(count) + 1) * self._block, side="left")
        return [
            [text for text in range(a, b + 1) if self._lengths[text]]
            for a, b in zip(first.tolist(), last.tolist(), strict=True)
        ]


class _Counting:
    """A tokenizer that notes how many tokens each text gave."""

    def __init__(self, tokenizer, lengths: list[int]):
        self._tokenizer, self._lengths = tokenizer, lengths

    def __call__(self, *args, **kwargs):
        result = self._tokenizer(*args, **kwargs)
        self._lengths += [len(ids) for ids in result["input_ids"]]
        return result

    def __getattr__(self, name: str):
        return getattr(self._tokenizer, name)
