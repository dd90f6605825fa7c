"""Does the disk hold all checkpoints? Sizes are those of the model on the meta device (`preflight/memory`)."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from ... import texts
from ...errors import ConfigError
from ...identity.model import TOKENIZER_FILES, find_folder
from ..result import FAIL, PASS, SKIPPED, WARN, Check
from ..run_config import RunConfig, parsed
from .effective import Effective
from .saves import number_of_saves

GIB = 2**30
#: tokenizer, configs and logs beside the weights, where the base model's are not here: those of a 150k vocabulary
_REST = 16 << 20
#: checkpoints for which there should be room where the number of saves is not known
_ENOUGH = 10
#: other things write too: warn when the estimate leaves less than this share of itself
_SPARE = 0.1


@dataclass(frozen=True)
class Size:
    """Bytes of one save: `weights` (with the tokenizer), `state` of the optimizer; `note` on what is rough."""

    weights: int
    state: int
    note: str = ""


def check_disk(run: Effective) -> list[Check]:
    """`disk`: GiB that the run will save against what is free where `output_dir` lies."""
    free = shutil.disk_usage(existing(run.output_dir)).free
    try:
        size = save_size(run.config)
    except ConfigError as error:
        text = texts.text("ahead.disk.unknown", free=free / GIB, error=error)
        return [Check("disk", SKIPPED, None, None, text)]
    return [judge_disk(run, size, free)]


def judge_disk(run: Effective, size: Size, free: int) -> Check:
    """Compare; `free` in bytes."""
    one = size.weights + (0 if run.get("save_only_model") else size.state)
    saves, limit = number_of_saves(run), run.get("save_total_limit")
    kept = limit + 1 if limit and limit > 0 else None  # a new one is written before an old one goes
    number = min((count for count in (saves, kept) if count is not None), default=None)
    note = f" ({size.note})" if size.note else ""
    fix = texts.text("ahead.disk.cure")
    if number is None:
        fit = max(int((free - size.weights) // one), 0)
        text = texts.text("ahead.disk.fits", fit=fit, size=_gib(one), note=note)
        status = PASS if fit >= _ENOUGH else WARN if fit >= 1 else FAIL
        return Check("disk", status, fit, _ENOUGH, text, "" if status == PASS else fix)
    needed = number * one + size.weights
    many = texts.text("ahead.disk.many", number=number) if number > 1 else texts.text("ahead.disk.one", number=number)
    text = texts.text("ahead.disk.final", many=many, size=_gib(one), note=note)
    text += texts.text("ahead.disk.needed", needed=_gib(needed), free=_gib(free))
    status = FAIL if needed > free else WARN if needed * (1 + _SPARE) > free else PASS
    return Check("disk", status, round(needed / GIB, 3), round(free / GIB, 3), text, "" if status == PASS else fix)


def save_size(config: RunConfig) -> Size:
    """What one save of this config takes.

    Raises:
        ConfigError: the model's config is not on this machine, or the stage is not modelled.
    """
    from ..memory.optimizer import states
    from ..memory.parameters import build
    from ..memory.setup import read_setup

    with parsed(config) as arguments:  # its own: `build` changes them
        setup = read_setup(config, arguments, None)
        built = build(arguments, setup)
        trained = [parameter for parameter in built.parameters if parameter.trainable]
        adapter = setup.method in ("lora", "oft")
        held = states(setup.optim, arguments.finetuning, trained)
        weights = sum(parameter.bytes for parameter in (trained if adapter else built.parameters))
        return Size(weights + _rest(arguments.model), held.bytes, held.note)


def existing(folder: Path) -> Path:
    """The nearest folder above (or itself) that exists."""
    folder = folder.absolute()
    return next(one for one in (folder, *folder.parents) if one.is_dir())


def _rest(model_args) -> int:
    folder = find_folder(model_args.model_name_or_path, model_args.model_revision, None, model_args.cache_dir)
    if folder is None:
        return _REST
    return sum(file.stat().st_size for file in folder.iterdir() if TOKENIZER_FILES.fullmatch(file.name))


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.1f} MiB"
