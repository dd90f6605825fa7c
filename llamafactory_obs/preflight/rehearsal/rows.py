"""The rows that a config trains on, as LlamaFactory's own pipeline reads them: how long each is, and its content."""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from ...errors import ConfigError
from ..mask.collect import collect
from ..mask.collected import CannotAlign, Collected, Source
from ..mask.observe import DATASET, ROW, CannotEncode
from ..mask.segments import IGNORE, NotUnderstood
from ..mask.share import column
from ..run_config import Arguments, RunConfig, parsed
from .derive import NO_EVALUATION, without

#: rows of a stream that are looked at: its end may be never
_OF_A_STREAM = 2000


@dataclass
class Rows:
    """The training split of a config; dropped rows are left out.

    Attributes:
        arguments: LlamaFactory's, read without machine and evaluation keys.
        dataset, row: (rows,) number into `names`, and the row's number in its source.
        length: (rows,) tokens after `cutoff_len`; of a pair the longer answer. `pt` with packing: the whole text.
        labels: (rows,) tokens that teach something: those in the loss without end tokens (of a pair the lesser).
        names: of the data sets.
        block: tokens of one sequence where rows are packed into blocks, else None.
        notes: what this leaves open, for people.
        tokenized: the rows of an existing `tokenized_path` (a `datasets` object), else None.
    """

    arguments: Arguments
    dataset: np.ndarray
    row: np.ndarray
    length: np.ndarray
    labels: np.ndarray
    names: list[str]
    block: int | None = None
    notes: list[str] = field(default_factory=list)
    tokenized: object = None
    sources: list[Source] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def has_media(self) -> bool:
        """Whether a data set names a column of images, videos or audios."""
        media = ("images", "videos", "audios")
        return any(getattr(source.attributes, name) for source in self.sources for name in media)

    def named(self, position: int) -> dict:
        """`{"dataset", "row", "length"}` of a row, for the record."""
        name = self.names[int(self.dataset[position])]
        return {"dataset": name, "row": int(self.row[position]), "length": int(self.length[position])}

    def content(self, positions: list[int]) -> list[dict]:
        """The rows as they stand in their sources."""
        found: dict[tuple[int, int], dict] = {}
        for number in {int(self.dataset[p]) for p in positions}:
            source = self.sources[number]
            wanted = {int(self.row[p]) for p in positions if self.dataset[p] == number}
            if hasattr(source.rows, "__len__"):
                found |= {(number, row): source.raw(row) for row in wanted}
            else:
                stream = enumerate(islice(source.rows, max(wanted) + 1))
                found |= {(number, row): content for row, content in stream if row in wanted}
        return [found[int(self.dataset[p]), int(self.row[p])] for p in positions]


@contextlib.contextmanager
def training_rows(config: RunConfig) -> Iterator[Rows]:
    """Read the training split; contents can be had within the context.

    Raises:
        ConfigError: the config or its data cannot be read, no row is left, or its stage has no such data.
    """
    if config.given.get("stage") == "ppo":
        raise ConfigError("stage ppo: a rehearsal covers pt, sft, rm, dpo and kto; ppo generates while it trains")
    evaluation = [key for key in NO_EVALUATION if key != "val_size"]
    with parsed(replace(config, given=without(config.given, evaluation))) as arguments:
        notes = _streaming(arguments)
        try:
            with collect(arguments, _OF_A_STREAM if arguments.data.streaming else None) as collected:
                rows = _read(collected, notes)
                if not len(rows):
                    raise ConfigError(
                        f"{config.path}: LlamaFactory finds no row to train on in {', '.join(rows.names)}"
                    )
                yield rows
        except (CannotAlign, CannotEncode, NotUnderstood) as error:
            why = _why(error, [*(arguments.data.dataset or []), *(arguments.data.eval_dataset or [])])
            raise ConfigError(f"{why}; see `llamafactory-obs mask {config.path}`") from error


def _why(error: Exception, names: list[str]) -> str:
    if isinstance(error, CannotAlign):
        return f"LlamaFactory cannot read the data set {error.source.name}: {error.why}"
    if isinstance(error, CannotEncode):
        return f"LlamaFactory raises on row {error.row} of {names[error.dataset]}: {error.why}"
    return f"the data cannot be read: {error}"


def _streaming(arguments: Arguments) -> list[str]:
    """A stream of local files is read as a whole; of another one only the beginning is known."""
    from llamafactory.data.parser import get_dataset_list

    data = arguments.data
    if not data.streaming:
        return []
    try:
        entries = get_dataset_list(data.dataset, data.dataset_dir)
    except Exception as error:
        raise ConfigError(f"the data sets cannot be had: {' '.join(str(error).split())}") from error
    note = "streaming is off in this run: the order of a stream and its workers are not rehearsed"
    if all(entry.load_from == "file" for entry in entries):
        data.streaming = False
        return [note]
    return [note, f"rows come from the first {_OF_A_STREAM} of the stream: a longer one may follow"]


def _read(collected: Collected, notes: list[str]) -> Rows:
    arguments, names = collected.arguments, [source.name for source in collected.sources]
    train = next((split for split in collected.splits if split.name == "train"), None)
    if collected.tokenized:
        return _tokenized(arguments, notes)
    if train is None:
        raise ConfigError("the config names no data set to train on")
    stage, data = arguments.finetuning.stage, arguments.data
    block = None
    if data.packing and stage in ("sft", "pt"):
        block = data.cutoff_len + (stage == "sft")  # LlamaFactory fills a packed conversation up to one more
    if train.skipped or (stage == "pt" and data.packing):
        figures = np.array(_encode(collected, train.rows), dtype=np.int64).reshape(-1, 4)
    else:
        columns = [train.dataset, train.row, column(train.figures, "length"), column(train.figures, "learnable")]
        figures = np.stack(columns, axis=1)[column(train.figures, "dropped") == 0]
    figures = figures[figures[:, 2] > 0]
    return Rows(arguments, *figures.T, names, block, notes, None, collected.sources)


def _encode(collected: Collected, aligned) -> list[tuple[int, int, int, int]]:
    """(data set, row, length, labels) of each aligned row by LlamaFactory's processor, one row at a time."""
    from llamafactory.data.loader import _get_dataset_processor

    arguments = collected.arguments
    data, stage = copy.copy(arguments.data), arguments.finetuning.stage
    if stage == "pt":
        data.packing, data.cutoff_len = False, 1 << 30  # texts are cut only after they were joined
    worker = _get_dataset_processor(
        data, "rm" if stage == "dpo" else stage, collected.template, collected.tokenizer, collected.processor
    )
    found = []
    for number, example in enumerate(aligned):
        if number == _OF_A_STREAM and not hasattr(aligned, "__len__"):
            break
        try:
            out = worker.preprocess_dataset({name: [value] for name, value in example.items()})
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise CannotEncode(example[DATASET], example[ROW], why) from error
        found.append((example[DATASET], example[ROW], *_figures({name: out[name][0] for name in out if out[name]})))
    return found


def _figures(row: dict) -> tuple[int, int]:
    """Length and labels of a tokenized row; of a pair the longer one, and the labels of that with fewer."""
    ids = [row[name] for name in row if name.endswith("input_ids") and row[name] is not None]
    labels = [row[name] for name in row if name.endswith("labels") and not name.startswith("kl_")]
    length = max((len(one) for one in ids), default=0)
    return length, min((len(one) - list(one).count(IGNORE) for one in labels), default=length)


def _tokenized(arguments: Arguments, notes: list[str]) -> Rows:
    from datasets import DatasetDict, load_from_disk

    path = arguments.data.tokenized_path
    loaded = load_from_disk(path)
    rows = loaded["train"] if isinstance(loaded, DatasetDict) else loaded
    figures = np.array([_figures(row) for row in rows], dtype=np.int64).reshape(-1, 2)
    numbers = np.arange(len(figures))
    return Rows(arguments, np.zeros_like(numbers), numbers, *figures.T, [str(path)], None, notes, rows)
