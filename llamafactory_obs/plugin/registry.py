"""Names that may stand under `callbacks:` and the classes behind them."""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys

from ..errors import ConfigError
from .names import did_you_mean

#: entry-point group through which other distributions add names
GROUP = "llamafactory_obs.callbacks"

#: our own callbacks: YAML name -> "module:Class"
OWN = {
    "grad_norm_spike": "llamafactory_obs.callbacks.grad_norm_spike:GradNormSpike",
    "layer_norms": "llamafactory_obs.callbacks.layer_norms:LayerNorms",
    "optimizer": "llamafactory_obs.callbacks.optimizer:OptimizerHealth",
    "label_mask": "llamafactory_obs.callbacks.label_mask:LabelMask",
    "vram": "llamafactory_obs.callbacks.vram:Vram",
    "throughput": "llamafactory_obs.callbacks.throughput:Throughput",
    "system": "llamafactory_obs.callbacks.system:System",
    "ranks": "llamafactory_obs.callbacks.ranks:RankWatch",
    "samples": "llamafactory_obs.callbacks.samples:Samples",
    "probe": "llamafactory_obs.callbacks.probe:Probe",
    "quality": "llamafactory_obs.callbacks.quality:Quality",
    "diagnose": "llamafactory_obs.callbacks.diagnose:Diagnose",
    "checkpoint_guard": "llamafactory_obs.callbacks.checkpoint_guard:CheckpointGuard",
}

#: short names for what the host already has
HOST = {"early_stopping": "transformers:EarlyStoppingCallback"}


def third_party() -> dict[str, str]:
    """Names added by other installed distributions through the entry-point group."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=GROUP)}


def known_names() -> dict[str, str]:
    """Every short name -> "module:Class". Ours cannot be taken over by another distribution."""
    return {**third_party(), **HOST, **OWN}


def resolve(name: str, where: str) -> type:
    """The TrainerCallback class behind a short name, a dotted path or `file.py:Class`.

    Args:
        name: as it stands in the config.
        where: the entry, for the error line, e.g. `callbacks[2]`.

    Raises:
        ConfigError: unknown, not importable, or no TrainerCallback.
    """
    names = known_names()
    if name in names:
        module_name, _, class_name = names[name].partition(":")
        module = _import(module_name, where, name)
    elif ".py:" in name or (os.sep in name and ":" in name):
        path, _, class_name = name.rpartition(":")
        module = _load_file(path, where)
    elif "." in name:
        module_name, _, class_name = name.rpartition(".")
        module = _import(module_name, where, name)
    else:
        raise ConfigError(
            f"{where}: unknown callback {name!r}{did_you_mean(name, names)} (known: {', '.join(sorted(names))};"
            " or a dotted path such as my_package.callbacks.MyCallback)"
        )
    cls = getattr(module, class_name, None)
    if cls is None:
        raise ConfigError(
            f"{where}: {module.__name__} has no class {class_name!r}{did_you_mean(class_name, vars(module))}"
        )
    from transformers import TrainerCallback

    if not (isinstance(cls, type) and issubclass(cls, TrainerCallback)):
        raise ConfigError(f"{where}: {name!r} is not a subclass of transformers.TrainerCallback")
    return cls


def see_current_folder() -> None:
    """Let the user's own package beside the YAML be imported; last, so that it shadows nothing."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def _import(module_name: str, where: str, name: str):
    see_current_folder()
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{where}: cannot import {module_name!r} for {name!r}: {one_line(error)}"
            " (is its package installed, or the folder that holds it the current one?)"
        ) from error


def _load_file(path: str, where: str):
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(path):
        raise ConfigError(f"{where}: no such file: {path}")
    module_name = f"llamafactory_obs_user_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # so that its classes can be pickled
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise ConfigError(f"{where}: {path} does not import: {one_line(error)}") from error
    return module


def one_line(error: BaseException) -> str:
    """`ImportError: no module x`, whatever line breaks the message has."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
