"""The chosen rows as a data set folder of LlamaFactory's, so that the rehearsal can be read and run again by hand."""

import itertools
import json
import os
import re
import tempfile
from pathlib import Path

from ...errors import ConfigError
from .rows import Rows

_COLUMNS = "prompt query response history messages system tools images videos audios chosen rejected kto_tag"
_TAGS = "role_tag content_tag user_tag assistant_tag observation_tag function_tag system_tag"


def write(rows: Rows, steps: list[list[int]], folder: Path) -> dict:
    """Write rows in their order.

    Rows of one data set that follow one another make a file; LlamaFactory joins the files in their order
    (`mix_strategy: concat`), which the sampler keeps (`disable_shuffling`).

    Args:
        rows: where the rows are from.
        steps: positions in `rows`, by step.
        folder: is made.

    Returns:
        The keys of the run config that point to the rows.

    Raises:
        ConfigError: the folder cannot be written, or a row cannot be stored.
    """
    try:
        folder.mkdir(parents=True)
        if rows.tokenized is not None:
            return _write_tokenized(rows, steps, folder)
        order = itertools.chain.from_iterable(steps)
        info = {}
        for number, run in itertools.groupby(order, key=lambda p: int(rows.dataset[p])):
            name = f"{len(info) + 1:03d}_{re.sub(r'[^A-Za-z0-9_.-]', '_', rows.names[number])}"
            file = _write_file(folder / name, rows.content(list(run)), rows.sources[number].rows)
            info[name] = {"file_name": file.name, **_entry(rows.sources[number].attributes)}
        (folder / "dataset_info.json").write_text(json.dumps(info, ensure_ascii=False, indent=2), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from None
    media = {"media_dir": os.path.abspath(str(rows.arguments.data.media_dir))} if rows.has_media else {}
    return {"dataset": ",".join(info), "dataset_dir": str(folder.absolute()), **media}


def _write_file(stem: Path, content: list[dict], source) -> Path:
    """One row a line, where that reads back as the same rows; else Parquet (pictures, dates that look like text)."""
    import datasets

    file = stem.with_name(f"{stem.name}.jsonl")
    try:
        text = "\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in content)
        file.write_text(text + "\n", encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as scratch, _no_bars():
            again = datasets.load_dataset("json", data_files=str(file), cache_dir=scratch, split="train")
            if again.to_list() == content:
                return file
    except (TypeError, ValueError, datasets.exceptions.DatasetGenerationError):
        pass
    file.unlink(missing_ok=True)
    features = getattr(source, "features", None)
    if features is None:
        raise ConfigError(f"rows of {stem.name[4:]} can be stored neither as JSON nor as Parquet: not covered")
    file = stem.with_name(f"{stem.name}.parquet")
    with _no_bars():
        datasets.Dataset.from_list(content, features=features).to_parquet(file)
    return file


def _entry(attributes) -> dict:
    """The entry of `dataset_info.json` that gives the same attributes, wherever the data set came from."""
    named = {
        block: {name: getattr(attributes, name) for name in names.split() if getattr(attributes, name) is not None}
        for block, names in (("columns", _COLUMNS), ("tags", _TAGS))
    }
    return {"formatting": attributes.formatting, "ranking": attributes.ranking, **named}


def _write_tokenized(rows: Rows, steps: list[list[int]], folder: Path) -> dict:
    """Rows that were tokenized earlier go on as tokens."""
    import datasets

    order = [int(rows.row[p]) for step in steps for p in step]
    with _no_bars():
        datasets.DatasetDict({"train": rows.tokenized.select(order)}).save_to_disk(str(folder / "tokenized"))
    return {"tokenized_path": str((folder / "tokenized").absolute())}


class _no_bars:
    """The progress bars of `datasets` would say that rows are generated."""

    def __enter__(self):
        import datasets

        self._shown = datasets.utils.logging.is_progress_bar_enabled()
        datasets.disable_progress_bars()

    def __exit__(self, *error):
        import datasets

        if self._shown:
            datasets.enable_progress_bars()
