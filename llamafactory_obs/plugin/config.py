"""Our two keys in LlamaFactory's arguments: found and taken out before its strict parser sees them.

The arguments come as LlamaFactory holds them: a mapping (YAML, JSON, `run_exp(dict)`) or the words of a command line
(`--stage sft --callbacks '[vram]'`, the form that the web UI shows).
"""

import json
from pathlib import Path

import yaml

from ..errors import ConfigError

KEYS = ("callbacks", "obs")


def split(args: dict | list[str]) -> tuple[dict | list[str], dict]:
    """Take our keys out.

    Returns:
        The arguments without them (a copy), and a mapping with those of `callbacks` and `obs` that were given.

    Raises:
        ConfigError: a `--callbacks` or `--obs` on the command line that is no YAML.
    """
    if isinstance(args, dict):
        return {k: v for k, v in args.items() if k not in KEYS}, {k: args[k] for k in KEYS if k in args}
    rest, ours = [], {}
    words = iter(args)
    for word in words:
        key, equals, value = word.partition("=")
        if key not in [f"--{name}" for name in KEYS]:
            rest.append(word)
            continue
        value = value if equals else next(words, "")
        try:
            ours[key[2:]] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"{key} {value!r} is not YAML: {' '.join(str(error).split())}") from error
    return rest, ours


def read_json_config(path: str) -> dict:
    """A `.json` run config. (LlamaFactory 0.9.5 hands `json.load` a path and cannot read one itself.)

    Raises:
        ConfigError: missing, or no JSON object.
    """
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path} must hold one JSON object")
    return config
