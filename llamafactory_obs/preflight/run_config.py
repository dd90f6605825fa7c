"""A run config as LlamaFactory reads it, on a machine that may not be the one that trains."""

import contextlib
import importlib.util
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..plugin import config as plug
from ..settings import Settings
from .signals import signals_raise
from .value_types import check_value_types

#: keys that need the training machine, or would write or report somewhere; none of them changes a token or a label
_MACHINE = (
    "bf16 fp16 tf32 bf16_full_eval fp16_full_eval pure_bf16 deepspeed fsdp fsdp_config torch_compile "
    "torch_compile_backend torch_compile_mode use_unsloth use_unsloth_gc enable_liger_kernel use_kt use_v1_kernels "
    "quantization_bit quantization_method quantization_type double_quantization quantization_device_map "
    "report_to push_to_hub use_swanlab plot_loss optim ray_num_workers ray_run_name ray_storage_path "
    "ray_storage_filesystem resources_per_worker placement_strategy ray_init_kwargs master_addr master_port "
    "resume_from_checkpoint load_best_model_at_end ddp_backend logging_dir no_cuda use_cpu"
)
MACHINE = frozenset(_MACHINE.split())

#: a launcher's environment variables: where one stands, accelerate would wait here for the other processes of the run
_LAUNCHER = (
    "WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PMI_SIZE OMPI_COMM_WORLD_SIZE "
    "MV2_COMM_WORLD_SIZE"
)


@dataclass(frozen=True)
class RunConfig:
    """One run config.

    Attributes:
        path: its file.
        given: all keys but our two, overrides applied; a `~` of `output_dir` expanded, as transformers does.
        settings: our `obs:` block.
        callbacks: our `callbacks:` list as it stands there; empty where there is none.
        overrides: `key=value` of the call.
        ours: which of our two keys are there, be they empty.
    """

    path: Path
    given: dict
    settings: Settings
    callbacks: tuple = ()
    overrides: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words of a command line that name this config again."""
        return [str(self.path), *self.overrides]

    def options_of(self, callback: str) -> dict | None:
        """The options that `callbacks:` gives to one of ours by its short name; None where it is not listed.

        Options that are no mapping count as none here: `ahead/watched.py` says that the training refuses them.
        """
        for entry in self.callbacks:
            if entry == callback:
                return {}
            if isinstance(entry, dict) and (callback in entry or entry.get("name") == callback):
                options = entry[callback] if callback in entry else entry.get("args")
                return dict(options) if isinstance(options, dict) else {}
        return None


@dataclass(frozen=True)
class Arguments:
    """LlamaFactory's own argument objects for a config."""

    model: object
    data: object
    training: object
    finetuning: object


def read_run_config(path: Path, overrides: list[str] | tuple[str, ...] = ()) -> RunConfig:
    """Read a YAML or JSON run config, with `key=value` overrides, as `llamafactory-cli train` does.

    Raises:
        ConfigError: LlamaFactory is not installed, or the file is missing or no mapping.
    """
    if importlib.util.find_spec("llamafactory") is None:
        raise ConfigError('LlamaFactory is not installed in this environment: pip install "llamafactory-obs[train]"')
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ConfigError(f"{path}: a run config ends in .yaml, .yml or .json")
    if not path.is_file():
        raise ConfigError(f"{'not a file' if path.exists() else 'no such file'}: {path}")
    wrong = [word for word in overrides if "=" not in word or word.startswith("=")]
    if wrong:
        raise ConfigError(f"an override reads key=value, got {wrong[0]!r}")
    from omegaconf import OmegaConf

    try:
        base = plug.read_json_config(str(path)) if path.suffix == ".json" else OmegaConf.load(path)
        given = OmegaConf.to_container(OmegaConf.merge(base, OmegaConf.from_cli(list(overrides))))
    except ConfigError:
        raise
    except Exception as error:  # PyYAML, OmegaConf, or text that is none
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict) or not given:
        raise ConfigError(f"{path} must hold one mapping of keys and values")
    rest, ours = plug.split(given)
    if isinstance(rest.get("output_dir"), str):
        rest["output_dir"] = os.path.expanduser(rest["output_dir"])
    callbacks = ours.get("callbacks")
    if callbacks is not None and not isinstance(callbacks, (list, str)):
        raise ConfigError(f"{path}: callbacks: must be a list, got {type(callbacks).__name__} {callbacks!r}")
    listed = callbacks if isinstance(callbacks, list) else [callbacks] if callbacks else []
    return RunConfig(path, rest, Settings.parse(ours.get("obs")), tuple(listed), tuple(overrides), tuple(ours))


@contextlib.contextmanager
def parsed(config: RunConfig) -> Iterator[Arguments]:
    """LlamaFactory's argument objects; its `output_dir` is an empty folder that goes away, also after SIGTERM.

    Machine keys (`MACHINE`) are left out, so that a config for eight GPUs can be read on a laptop.

    Raises:
        ConfigError: LlamaFactory refuses the arguments; its own words.
    """
    if os.environ.get("USE_V1", "").lower() in ("1", "true", "y"):
        raise ConfigError("USE_V1=1: LlamaFactory's v1 reads data in another way, which is not supported; unset USE_V1")
    from llamafactory.hparams import (
        DataArguments,
        FinetuningArguments,
        ModelArguments,
        TrainingArguments,
        get_train_args,
    )

    classes = (ModelArguments, DataArguments, TrainingArguments, FinetuningArguments)
    check_value_types(config.given, config.path, classes)
    given = {key: value for key, value in config.given.items() if key not in MACHINE}
    with signals_raise(), tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as folder, quiet():
        given |= {"output_dir": folder, "overwrite_output_dir": True, "report_to": "none", "use_cpu": True}
        try:
            with _alone():
                model, data, training, finetuning, _ = get_train_args(given)
        except Exception as error:
            raise ConfigError(f"LlamaFactory refuses {config.path}: {' '.join(str(error).split())}") from error
        yield Arguments(model, data, training, finetuning)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without the variables of a launcher."""
    before = {name: os.environ.pop(name) for name in _LAUNCHER.split() if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """LlamaFactory logs whole rows for each one that it drops: nothing below an error is let through."""
    before = os.environ.get("LLAMAFACTORY_VERBOSITY")
    os.environ["LLAMAFACTORY_VERBOSITY"] = "ERROR"
    loggers = {name: logging.getLogger(name) for name in ("llamafactory", "transformers")}
    levels = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])
        if before is None:
            os.environ.pop("LLAMAFACTORY_VERBOSITY", None)
        else:
            os.environ["LLAMAFACTORY_VERBOSITY"] = before
