"""Our two keys in LlamaFactory's arguments: found and taken out before its strict parser sees them.

The arguments come as LlamaFactory holds them: a mapping (YAML, JSON, `run_exp(dict)`) or the words of a command line
(`--stage sft --callbacks vram label_mask`, the form that the web UI shows).
"""

import json
import os
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
    rest, ours, words = [], {}, list(args)
    while words:
        word = words.pop(0)
        key, equals, value = word.partition("=")
        if key not in [f"--{name}" for name in KEYS]:
            rest.append(word)
            continue
        values = [value] if equals else []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        ours[key[2:]] = _parse_words(key, values)
    return rest, ours


def _parse_words(key: str, words: list[str]):
    """The value of `--callbacks` or `--obs`: one YAML text, or several items (`vram label_mask {vram: {...}}`)."""
    items, open_brackets = [], 0
    for word in words:
        items = [*items[:-1], f"{items[-1]} {word}"] if open_brackets else [*items, word]
        open_brackets += sum(word.count(c) for c in "[{") - sum(word.count(c) for c in "]}")
    parsed = [parse_yaml(key, item) for item in items]
    return parsed[0] if len(parsed) == 1 else parsed


def parse_yaml(where: str, text: str):
    """One YAML value given on a command line.

    Raises:
        ConfigError: it is none.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        hint = "; a blank belongs after each colon, and quotes around the whole"
        raise ConfigError(f"{where} {text!r} is not YAML: {why}{hint}") from error


def without_blanks(word: str) -> str:
    """`callbacks=[a, b]` as JSON without blanks: LlamaFactory splits its torchrun command at every blank.

    Raises:
        ConfigError: the value is no YAML, or has blanks that belong to it.
    """
    key, equals, value = word.partition("=")
    if key not in KEYS or not equals:
        return word
    text = json.dumps(parse_yaml(f"{key}=", value), ensure_ascii=False, separators=(",", ":"))
    if " " in text and os.environ.get("FORCE_TORCHRUN"):
        raise ConfigError(f"{key}=: {value!r} has blanks, at which LlamaFactory's torchrun launch splits; use the YAML")
    return f"{key}={text}"


def as_mapping(args: dict | list[str]) -> dict:
    """The arguments by name, for the record: `["--stage", "sft"]` as `{"stage": "sft"}`."""
    if isinstance(args, dict):
        return args
    given: dict = {}
    key = "argv"
    for word in args:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            given[key] = value if equals else True
        else:
            given[key] = word if given.get(key) in (None, True) else f"{given[key]} {word}"
    return given


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
