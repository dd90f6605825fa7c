"""Text where LlamaFactory needs a number or true/false: it converts nothing that comes from a file.

`learning_rate: "1e-4"` ends in a TypeError after the model has loaded; `overwrite_output_dir: "false"` is text, so it
counts as true and deletes the log of the run before.
"""

import types
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints

from ..errors import ConfigError


def check_value_types(given: dict, path: Path, classes: tuple | list) -> None:
    """Compare values with the types of LlamaFactory's argument classes.

    Args:
        given: LlamaFactory's keys.
        path: of the config, for the message.
        classes: dataclasses; a key that none has is left to LlamaFactory.

    Raises:
        ConfigError: names all such keys.
    """
    hints = {name: hint for one in classes for name, hint in get_type_hints(one).items()}
    found = [_wrong(key, value, hints.get(key)) for key, value in given.items()]
    wrong = [text for text in found if text]
    if wrong:
        raise ConfigError(f"{path}: {'; '.join(wrong)}; LlamaFactory converts nothing")


def _wrong(key: str, value: object, hint: object) -> str:
    if not isinstance(value, (str, list, dict)):
        return ""
    kinds = _kinds(hint)
    if kinds == {bool}:
        counts = ", which counts as true" if value else ""
        return f"{key} is {_told(value)}{counts}: write true or false without quotes"
    if kinds and kinds <= {int, float}:
        return f"{key} is {_told(value)}: write a number without quotes"
    return ""


def _kinds(hint: object) -> set:
    """`int | None` is `{int}`; the empty set where the key is not known."""
    if get_origin(hint) in (Union, types.UnionType):
        return set(get_args(hint)) - {type(None)}
    return {hint} if hint is not None else set()


def _told(value: object) -> str:
    return f"the text {value!r}" if isinstance(value, str) else f"the {type(value).__name__} {value!r}"
