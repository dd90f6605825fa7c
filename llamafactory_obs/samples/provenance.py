"""Following the raw rows through LlamaFactory's data loading to the rows that the Trainer gets.

The names of `llamafactory.data.loader` are replaced for one launch. The extra columns are taken out again before
anything is saved or handed on, so that the Trainer's rows are those of a run without us.
"""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from .carry import SOURCES, Carrying
from .source_rows import DATASET, ROW, tagged, take_row_numbers, with_row_numbers


@dataclass
class Provenance:
    """Whose rows the training set's rows are.

    Attributes:
        names: of the data sets, by their number.
        column: Arrow column of the training set's length, see `carry.SOURCES`; None where it is not known.
        why: the reason for that.
        failed: something in following the rows failed.
    """

    names: list[str] = field(default_factory=list)
    column: object | None = None
    why: str = "LlamaFactory's loader made no training set"
    failed: bool = False

    def of(self, position: int) -> list[list] | None:
        """`[[data set, row], ...]` of a row of the training set; None where it is not known."""
        if self.column is None or position >= len(self.column):
            return None
        numbers = self.column[position].as_py()
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        if any(not 0 <= number < len(self.names) for number, _ in pairs):
            return None
        return [[self.names[number], row] for number, row in pairs]

    def lost(self, error: Exception) -> None:
        """It cannot be told, because of this."""
        self.failed, self.column = True, None
        self.why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


@contextlib.contextmanager
def following(data_args) -> Iterator[Provenance]:
    """Within the block LlamaFactory's loader is followed. Whatever fails in that leaves `why`; the loading goes on.

    Args:
        data_args: LlamaFactory's.
    """
    from llamafactory.data import loader
    from llamafactory.extras.misc import has_tokenized_data

    found = Provenance()
    if data_args.streaming:
        found.why = "streaming: rows have no place in a training set"
    elif data_args.tokenized_path is not None and has_tokenized_data(data_args.tokenized_path):
        found.why = "tokenized_path holds rows that were tokenized earlier"
    else:
        with _patched(loader, found, [*(data_args.dataset or []), *(data_args.eval_dataset or [])]):
            yield found
        return
    yield found


@contextlib.contextmanager
def _patched(loader, found: Provenance, names: list[str]) -> Iterator[None]:
    patches = {
        "load_dataset": _loading,
        "align_dataset": functools.partial(_aligning, found, iter(names)),
        "_get_preprocessed_dataset": functools.partial(_tokenizing, found, loader),
    }
    before = {name: getattr(loader, name) for name in patches}
    for name, patch in patches.items():
        setattr(loader, name, patch(before[name]))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(loader, name, function)


def _loading(load):
    def load_dataset(*args, **kwargs):
        dataset = load(*args, **kwargs)
        try:
            return with_row_numbers(dataset)
        except Exception:  # then they are told from the selection
            return dataset

    return load_dataset


def _aligning(found: Provenance, names: Iterator[str], align):
    def align_dataset(dataset, *args, **kwargs):
        found.names.append(next(names, "?"))
        number, rows = len(found.names) - 1, None
        try:
            dataset, rows = take_row_numbers(dataset)
        except Exception as error:
            found.lost(error)
        aligned = align(dataset, *args, **kwargs)
        try:
            return aligned if rows is None else tagged(aligned, number, rows)
        except Exception as error:
            found.lost(error)
            return aligned

    return align_dataset


def _tokenizing(found: Provenance, loader, preprocess):
    def get_preprocessed_dataset(dataset, *args, **kwargs):
        ours = [name for name in (DATASET, ROW) if name in (getattr(dataset, "column_names", None) or ())]
        if not ours:
            return preprocess(dataset, *args, **kwargs)
        if not found.failed and not kwargs.get("is_eval", False):
            try:
                with _carrying(loader):
                    result = preprocess(dataset, *args, **kwargs)
                return _taken_out(result, found)
            except Exception as error:  # if it is LlamaFactory's own, it comes again
                found.lost(error)
        return preprocess(dataset.remove_columns(ours), *args, **kwargs)

    return get_preprocessed_dataset


@contextlib.contextmanager
def _carrying(loader) -> Iterator[None]:
    make = loader._get_dataset_processor
    loader._get_dataset_processor = lambda *args, **kwargs: Carrying(make(*args, **kwargs))
    try:
        yield
    finally:
        loader._get_dataset_processor = make


def _taken_out(dataset, found: Provenance):
    """The tokenized rows without our column, which is kept apart."""
    if getattr(dataset, "_indices", None) is not None:
        raise ValueError("the tokenized rows are a selection")
    column = dataset.data.table.column(SOURCES)
    rest = dataset.remove_columns(SOURCES)
    found.column, found.why = column, ""
    return rest
