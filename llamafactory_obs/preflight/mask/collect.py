"""LlamaFactory's own data pipeline, run once for a config, with the figures of every row instead of its tokens.

Read-only: the tokenized rows are never stored, local files are read into a folder that goes away, `tokenized_path` is
read and not written, model weights are not loaded. Data sets from a hub go to the user's own cache, as in training.
"""

import contextlib
import copy
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...errors import ConfigError
from ...samples.source_rows import ROW, tagged, take_row_numbers, with_row_numbers
from ...texts import text
from ..run_config import Arguments
from .collected import CannotAlign, Collected, Source, Split, empty, join
from .observe import CannotEncode, Conversations, Texts
from .segments import COLUMNS, IGNORE, NotUnderstood, Rules

#: rows of a stream whose content is kept to be shown
_KEPT_OF_A_STREAM = 2000

#: stage -> the stage whose data LlamaFactory's workflow of it loads, where they differ
_DATA_OF = {"dpo": "rm"}


@contextlib.contextmanager
def collect(arguments: Arguments, samples: int | None = None) -> Iterator[Collected]:
    """Run the pipeline; rows can be viewed within the context.

    Args:
        arguments: of the config.
        samples: at most so many rows per split, spread evenly over it (of a stream the first); None takes all.

    Raises:
        ConfigError: the tokenizer, the template or a data set cannot be had.
        CannotAlign, CannotEncode: LlamaFactory raises on the data, as it would in training.
        NotUnderstood: what it made is not what it is known to make.
    """
    from llamafactory.data import loader
    from llamafactory.extras.misc import has_tokenized_data

    collected = _prepare(arguments)
    data_args = copy.copy(arguments.data)
    if data_args.tokenized_path is not None and not has_tokenized_data(data_args.tokenized_path):
        data_args.tokenized_path = None  # LlamaFactory would write it
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="llamafactory-obs-"))
        stack.enter_context(_no_cache())
        stack.enter_context(_patched(loader, collected, scratch, samples))
        try:
            module = loader.get_dataset(
                collected.template,
                arguments.model,
                data_args,
                arguments.training,
                _DATA_OF.get(arguments.finetuning.stage, arguments.finetuning.stage),
                tokenizer=collected.tokenizer,
                processor=collected.processor,
            )
        except (CannotAlign, CannotEncode, NotUnderstood):
            raise
        except Exception as error:  # files, hubs, columns of a late row of a stream: whatever a loader raises
            why = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise ConfigError(f"LlamaFactory cannot load the data: {why}") from error
        if data_args.tokenized_path is not None:
            _read_tokenized(module, collected, samples)
        yield collected


def _prepare(arguments: Arguments) -> Collected:
    from llamafactory.data.template import TEMPLATES, get_template_and_fix_tokenizer
    from llamafactory.model import load_config, load_tokenizer

    try:
        module = load_tokenizer(arguments.model)
    except Exception as error:
        place = arguments.model.model_name_or_path
        raise ConfigError(f"no tokenizer at model_name_or_path {place}: {' '.join(str(error).split())}") from error
    tokenizer = module["tokenizer"]
    before = (tokenizer.chat_template, tokenizer.eos_token, len(tokenizer))
    name = arguments.data.template
    untouched = copy.deepcopy(TEMPLATES[name]) if name in TEMPLATES else None
    try:
        template = get_template_and_fix_tokenizer(tokenizer, arguments.data)
    except Exception as error:
        raise ConfigError(f"template {name!r}: {' '.join(str(error).split())}") from error
    finally:
        if untouched is not None:
            TEMPLATES[name] = untouched  # LlamaFactory changes the registered one; a later run must not inherit that
    vocabulary = None
    with contextlib.suppress(Exception):  # no config, one that this transformers does not know, remote code
        config = load_config(arguments.model)
        config = getattr(config, "text_config", config)
        vocabulary = int(config.vocab_size)
        if arguments.model.resize_vocab:
            vocabulary = max(vocabulary, len(tokenizer))
    original = _original(tokenizer, before, arguments)
    rules = Rules(
        train_on_prompt=arguments.data.train_on_prompt,
        mask_history=arguments.data.mask_history,
        efficient_eos=template.efficient_eos,
        stops=frozenset(token for token in template.get_stop_token_ids(tokenizer) if token is not None),
        eos=tokenizer.eos_token_id,
        vocabulary=vocabulary,
    )
    return Collected(arguments, tokenizer, original, module["processor"], template, vocabulary, rules)


def _original(tokenizer, before: tuple, arguments: Arguments):
    """The tokenizer as it was: loaded once more only where the template changed more than the chat template."""
    from llamafactory.model import load_tokenizer

    chat_template, eos, size = before
    if (eos, size) != (tokenizer.eos_token, len(tokenizer)):
        return load_tokenizer(arguments.model)["tokenizer"]
    original = copy.copy(tokenizer)
    original.chat_template = chat_template
    return original


@contextlib.contextmanager
def _no_cache() -> Iterator[None]:
    """Mapped rows are written to no cache but a temporary one."""
    import datasets

    before = datasets.is_caching_enabled()
    datasets.disable_caching()
    try:
        yield
    finally:
        if before:
            datasets.enable_caching()


@contextlib.contextmanager
def _patched(loader, collected: Collected, scratch: str, samples: int | None) -> Iterator[None]:
    """`llamafactory.data.loader` with three of its names replaced: loading, aligning, tokenizing."""
    from datasets.arrow_writer import OptimizedTypedSequence

    sequence = OptimizedTypedSequence.__init__  # LlamaFactory changes it for `neat_packing`, for good
    before = {name: getattr(loader, name) for name in ("load_dataset", "align_dataset", "_get_preprocessed_dataset")}
    load, align = before["load_dataset"], before["align_dataset"]
    names = [*(collected.arguments.data.dataset or []), *(collected.arguments.data.eval_dataset or [])]

    def load_dataset(*args, **kwargs):
        if kwargs.get("data_files"):
            kwargs["cache_dir"] = scratch
        return with_row_numbers(load(*args, **kwargs))

    def align_dataset(dataset, attributes, *args, **kwargs):
        number = len(collected.sources)
        dataset, rows = take_row_numbers(dataset)
        source = Source(names[number], attributes, dataset, None if rows is None else rows.tolist())
        collected.sources.append(source)
        try:
            aligned = align(dataset, attributes, *args, **kwargs)
            if not hasattr(aligned, "__len__"):
                next(iter(aligned))  # a stream is aligned as it is read
        except Exception as error:
            raise CannotAlign(source, error) from error
        return tagged(aligned, number, rows)

    def preprocessed(dataset, data_args, training_args, stage, template, tokenizer, processor=None, is_eval=False):
        if dataset is None:
            return None
        split = "eval" if is_eval else "train"
        generates = training_args.predict_with_generate and is_eval
        why = ""
        if generates:
            why = text("mask.collect.generates")
        elif stage not in ("sft", "pt"):
            name = collected.arguments.finetuning.stage
            why = text("mask.collect.stage", name=name)
        if why:
            collected.splits.append(replace(empty(split, why), rows=dataset))
            return dataset
        worker = loader._get_dataset_processor(data_args, stage, template, tokenizer, processor, do_generate=False)
        observer = (Texts if stage == "pt" else Conversations)(worker, collected.rules)
        part = _observe(dataset, observer, split, data_args, samples)
        same = next((s for s in collected.splits if s.name == split and not s.skipped), None)
        if same is not None:  # eval_on_each_dataset
            join(same, part)
        else:
            collected.splits.append(part)
        return dataset

    loader.load_dataset, loader.align_dataset, loader._get_preprocessed_dataset = (
        load_dataset,
        align_dataset,
        preprocessed,
    )
    try:
        yield
    finally:
        OptimizedTypedSequence.__init__ = sequence
        for name, function in before.items():
            setattr(loader, name, function)


def _observe(dataset, observer, split: str, data_args, samples: int | None) -> Split:
    if not hasattr(dataset, "__len__"):
        return _observe_stream(dataset, observer, split, data_args.preprocessing_batch_size, samples)
    if samples is not None and samples < len(dataset):
        dataset = dataset.select([int(i * len(dataset) / samples) for i in range(samples)])
    result = dataset.map(
        observer,
        batched=True,
        batch_size=data_args.preprocessing_batch_size,
        num_proc=data_args.preprocessing_num_workers,
        remove_columns=dataset.column_names,
        load_from_cache_file=False,
        new_fingerprint=uuid.uuid4().hex,  # else the tokenizer is pickled to make one
        desc=f"Reading rows ({split})",
    )
    if not len(result):
        return empty(split, "")
    columns = {name: result.with_format("arrow")[:][name].combine_chunks() for name in result.column_names}
    found = columns["figures"].flatten().to_numpy(zero_copy_only=False).astype(np.int64).reshape(-1, len(COLUMNS))
    names, rows = (columns[name].to_numpy(zero_copy_only=False) for name in ("dataset", "row"))
    return Split(split, names, rows, found, "", observer, dataset)


def _observe_stream(dataset, observer, split: str, batch_size: int, samples: int | None) -> Split:
    from tqdm import tqdm

    names, rows, found, kept = [], [], [], {}
    stream = dataset if samples is None else dataset.take(samples)
    bar = tqdm(desc=f"Reading rows ({split})", unit=" rows", total=samples)
    with bar:
        for batch in stream.iter(batch_size=batch_size):
            out = observer(batch)
            for i in range(min(len(batch[ROW]), _KEPT_OF_A_STREAM - len(kept))):
                kept[len(kept)] = {name: batch[name][i] for name in batch}
            names += out["dataset"]
            rows += out["row"]
            found += out["figures"]
            bar.update(len(batch[ROW]))
    if not found:
        return empty(split, "")
    return Split(split, np.array(names), np.array(rows), np.array(found, dtype=np.int64), "", observer, kept)


def _read_tokenized(module: dict, collected: Collected, samples: int | None) -> None:
    """Rows that were tokenized earlier: their tokens and labels are counted, whose they are is not known."""
    collected.tokenized = True
    collected.sources.append(Source(str(collected.arguments.data.tokenized_path), None, None))
    evaluation = module.get("eval_dataset")
    parts = evaluation.values() if isinstance(evaluation, dict) else [evaluation]
    for split, rows in [("train", module.get("train_dataset")), *(("eval", part) for part in parts)]:
        if rows is None:
            continue
        if "labels" not in next(iter(rows), {}):
            collected.splits.append(empty(split, "the rows in tokenized_path have no column `labels`"))
            continue
        found = []
        for index, row in enumerate(rows):
            if samples is not None and index >= samples:
                break
            found.append(_tokenized_figures(row, collected.rules.vocabulary))
        numbers = np.arange(len(found))
        collected.splits.append(Split(split, np.zeros_like(numbers), numbers, np.array(found), "", None, None))


def _tokenized_figures(row: dict, vocabulary: int | None) -> list[int]:
    ids, labels = row["input_ids"], row["labels"]
    mask, positions = row.get("attention_mask") or [1] * len(ids), row.get("position_ids")
    real = sum(1 for one in mask if one)
    if positions:  # `packing`: padding has attention mask 1 and position 0
        end = len(positions)
        while end > 1 and positions[end - 1] == 0 and labels[end - 1] == IGNORE:
            end -= 1
        real = min(real, end)
    inside = len(labels) - labels.count(IGNORE)
    figures = dict.fromkeys(COLUMNS, 0)
    outside = 0 if vocabulary is None else sum(not 0 <= token < vocabulary for token in ids)
    figures |= {"length": real, "whole": real, "supervised": inside, "learnable": inside, "outside": outside}
    figures |= {"other": real, "other_in": inside, "due": inside, "checksum": zlib.crc32(np.array([ids, labels]))}
    return list(figures.values())
