"""The training set as LlamaFactory's own pipeline makes it from a config, and where in it a content stands.

Read-only: `tokenized_path` is read and not written, local files and mapped rows go to a folder that goes away.
"""

import contextlib
import copy
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import ConfigError
from ..identity.data import template_sha256
from ..preflight.run_config import Arguments
from ..samples.content import digest
from .content import row_ids

#: stage -> the stage whose data LlamaFactory's workflow of it loads, where they differ
_DATA_OF = {"dpo": "rm"}


@dataclass
class TrainingSet:
    """What the Trainer would be given.

    Attributes:
        rows: `datasets.Dataset` of the tokenized rows.
        arguments: LlamaFactory's.
        tokenizer, processor, template: as in training.
        template_sha256: of the template's content as used.
    """

    rows: object
    arguments: Arguments
    tokenizer: object
    processor: object
    template: object
    template_sha256: str | None = None
    _index: dict[str, int] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """LlamaFactory's stage."""
        return self.arguments.finetuning.stage

    @property
    def ids_name(self) -> str:
        """The column with the ids that a sample is known by; of a pair the chosen answer's."""
        return "chosen_input_ids" if "chosen_input_ids" in self.rows.column_names else "input_ids"

    def find(self, content: str) -> int | None:
        """The first position with this content (`digest` of its ids); the whole set is read once."""
        if not self._index:
            name = self.ids_name
            used = [one for one in (name, "position_ids", "attention_mask") if one in self.rows.column_names]
            for position, row in enumerate(self.rows.select_columns(used)):
                self._index.setdefault(digest(row_ids(row, name)), position)
        return self._index.get(content)


@contextlib.contextmanager
def training_set(arguments: Arguments) -> Iterator[TrainingSet]:
    """Load and tokenize; rows can be read within the context.

    Raises:
        ConfigError: the tokenizer, the template or a data set cannot be had.
    """
    from llamafactory.data import loader
    from llamafactory.extras.misc import has_tokenized_data
    from llamafactory.model import load_tokenizer

    try:
        module = load_tokenizer(arguments.model)
    except Exception as error:
        place, why = arguments.model.model_name_or_path, " ".join(str(error).split())[:200]
        raise ConfigError(
            f"no tokenizer at {place}: {why}; if the model moved: --override model_name_or_path=PLACE"
        ) from error
    template, content = _template(module["tokenizer"], arguments)
    data_args = copy.copy(arguments.data)
    if data_args.tokenized_path is not None and not has_tokenized_data(data_args.tokenized_path):
        data_args.tokenized_path = None  # LlamaFactory would write it
    if data_args.streaming:
        _read_whole(data_args)
    stage = _DATA_OF.get(arguments.finetuning.stage, arguments.finetuning.stage)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_nothing_kept(loader))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))  # LlamaFactory prints a whole example
        try:
            found = loader.get_dataset(template, arguments.model, data_args, arguments.training, stage, **module)
        except Exception as error:  # files, hubs, columns: whatever a loader raises
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ConfigError(
                f"LlamaFactory cannot load the run's data: {why}; if it moved: --override dataset_dir=PLACE"
            ) from error
        rows = found.get("train_dataset")
        if rows is None:
            raise ConfigError("the run's config names no data set to train on")
        yield TrainingSet(rows, arguments, module["tokenizer"], module["processor"], template, content)


def _read_whole(data_args) -> None:
    """A stream of local files is read as a whole: its rows are found by their content, in whatever split."""
    from llamafactory.data.parser import get_dataset_list

    try:
        entries = get_dataset_list(data_args.dataset, data_args.dataset_dir)
    except Exception as error:
        raise ConfigError(f"the data sets cannot be had: {' '.join(str(error).split())}") from error
    far = [str(entry) for entry in entries if entry.load_from != "file"]
    if far:
        raise ConfigError(f"streaming from a hub: the rows of {', '.join(far)} have no place that could be read again")
    data_args.streaming, data_args.val_size = False, 0.0


def _template(tokenizer, arguments: Arguments):
    """LlamaFactory's template and a hash of its content; the registered one stays as it was."""
    from llamafactory.data.template import TEMPLATES, get_template_and_fix_tokenizer

    name = arguments.data.template
    untouched = copy.deepcopy(TEMPLATES[name]) if name in TEMPLATES else None
    try:
        template = get_template_and_fix_tokenizer(tokenizer, arguments.data)
        return template, template_sha256(name)
    except Exception as error:
        raise ConfigError(f"template {name!r}: {' '.join(str(error).split())}") from error
    finally:
        if untouched is not None:
            TEMPLATES[name] = untouched


@contextlib.contextmanager
def _nothing_kept(loader) -> Iterator[None]:
    """Local files are read into a folder that goes away, mapped rows are written to no other cache."""
    import datasets
    from datasets.arrow_writer import OptimizedTypedSequence

    sequence = OptimizedTypedSequence.__init__  # LlamaFactory changes it for `neat_packing`, for good
    caching, load = datasets.is_caching_enabled(), loader.load_dataset
    with tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as scratch:

        def load_dataset(*args, **kwargs):
            if kwargs.get("data_files"):
                kwargs["cache_dir"] = scratch
            return load(*args, **kwargs)

        datasets.disable_caching()
        loader.load_dataset = load_dataset
        try:
            yield
        finally:
            loader.load_dataset, OptimizedTypedSequence.__init__ = load, sequence
            if caching:
                datasets.enable_caching()
