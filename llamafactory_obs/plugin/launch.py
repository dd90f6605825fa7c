"""`llamafactory-obs train`: LlamaFactory's own launcher in this process, with the hook put in place by hand.

It needs no automatic loading: `LLAMAFACTORY_OBS_AUTOLOAD=0` and `TORCH_DEVICE_BACKEND_AUTOLOAD=0` may be set.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..errors import ConfigError
from . import autoload

WORKER = Path(__file__).with_name("worker.py")

_CONFIG = (".yaml", ".yml", ".json")


def train(words: list[str]) -> int:
    """Train.

    Args:
        words: what would follow `llamafactory-cli train`: a config and overrides, or LlamaFactory's options.

    Returns:
        0, or 1 where torchrun's workers failed (they have said why). An exception of a training in this process
        passes through.

    Raises:
        ConfigError: LlamaFactory is not there, or the config cannot be read.
    """
    if importlib.util.find_spec("llamafactory") is None:
        raise ConfigError('LlamaFactory is not installed in this environment: pip install "llamafactory-obs[train]"')
    _check(words)
    autoload.install(force=True)
    _prefer_own_torchrun()
    if os.environ.get("USE_RAY", "").lower() in ("1", "true", "y"):  # Ray's workers only have what they inherit
        os.environ["LLAMAFACTORY_OBS_AUTOLOAD"] = os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
    try:
        from llamafactory import launcher
        from llamafactory.cli import main
    except ImportError as error:
        raise ConfigError(f"LlamaFactory does not import: {error}") from error
    argv, file = sys.argv, launcher.__file__
    sys.argv = ["llamafactory-cli", "train", *words]
    launcher.__file__ = str(WORKER)  # the script that the launcher gives to torchrun
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except subprocess.CalledProcessError as error:
        text = f"torchrun ended with exit code {error.returncode}; its workers say why above"
        print(f"llamafactory-obs: {text}", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        if error.filename != "torchrun":
            raise
        raise ConfigError("torchrun is not on PATH; it comes with torch: activate the environment it is in") from None
    except Exception as error:
        if _is_about_arguments(error):
            raise ConfigError(f"LlamaFactory refuses the arguments: {error}") from error
        raise
    finally:
        sys.argv, launcher.__file__ = argv, file
    return 0


def _check(words: list[str]) -> None:
    """What LlamaFactory would answer with a traceback."""
    if not words:
        raise ConfigError("train needs a run config: llamafactory-obs train RUN.yaml [key=value ...]")
    if words[0].startswith("-"):
        return
    path = Path(words[0])
    if path.suffix not in _CONFIG:
        raise ConfigError(f"{path}: a run config ends in {', '.join(_CONFIG)}")
    if not path.is_file():
        raise ConfigError(f"{'not a file' if path.exists() else 'no such file'}: {path}")
    if path.suffix == ".json":
        return  # read and checked by `config.read_json_config`
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is not readable YAML: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold one mapping of keys and values")


def _is_about_arguments(error: Exception) -> bool:
    """Was it raised while LlamaFactory read its arguments, before any data or model was loaded?"""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "llamafactory.hparams.parser":
            return True
        trace = trace.tb_next
    return False


def _prefer_own_torchrun() -> None:
    """Another environment's torchrun would start its own Python; without an activated environment there may be none."""
    own = Path(sys.executable).with_name("torchrun")
    if own.is_file() and shutil.which("torchrun") != str(own):
        os.environ["PATH"] = os.pathsep.join([str(own.parent), os.environ.get("PATH", os.defpath)])
