"""YAML with the line of every value, so that a mistake in a user's file can be named by its line."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from ..errors import ConfigError
from ..plugin.names import did_you_mean


class Located:
    """One value of a YAML file and where it stands.

    Attributes:
        value: the plain Python value.
        line: counted from 1.
    """

    def __init__(self, file: Path, node: yaml.Node, value: object, where: str):
        self.value, self.line = value, node.start_mark.line + 1
        self._file, self._where = file, where
        self._children: dict = {}

    def fail(self, problem: str) -> ConfigError:
        """The error to raise: file, line, place and problem in one line."""
        place = f"{self._where}: " if self._where else ""
        return ConfigError(f"{self._file}:{self.line}: {place}{problem}")

    def mapping(self, known: Iterable[str] | None = None, required: Iterable[str] = ()) -> dict[str, "Located"]:
        """The entries of a mapping; `known` names the keys that may stand there."""
        if not isinstance(self.value, dict):
            raise self.fail(f"must be a mapping, got {_short(self.value)}")
        names = None if known is None else list(known)
        for key in self.value:
            if names is not None and key not in names:
                raise self._children[key].fail(f"unknown key{did_you_mean(key, names)} (known: {', '.join(names)})")
        for key in required:
            if key not in self.value:
                raise self.fail(f"{key!r} is missing")
        return dict(self._children)

    def items(self) -> list["Located"]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            raise self.fail(f"must be a list, got {_short(self.value)}")
        return list(self._children.values())

    def text(self, empty: bool = False) -> str:
        """A text; an empty one only where it may be."""
        if not isinstance(self.value, str) or not (empty or self.value.strip()):
            raise self.fail(f"must be {'a' if empty else 'a non-empty'} text, got {_short(self.value)}")
        return self.value

    def whole(self, least: int, most: int) -> int:
        """A whole number of a range."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.fail(f"must be a whole number from {least} to {most}, got {_short(self.value)}")
        return self.value

    def truth(self) -> bool:
        """true or false."""
        if not isinstance(self.value, bool):
            raise self.fail(f"must be true or false, got {_short(self.value)}")
        return self.value

    def at(self, path: Iterable) -> "Located":
        """The value below this one at a path of keys and indices, as deep as it goes."""
        found = self
        for step in path:
            if step not in found._children:
                break
            found = found._children[step]
        return found


def read_yaml(file: Path) -> Located:
    """The root value of a YAML (or JSON) file.

    Raises:
        ConfigError: it cannot be read, is no YAML, has a key twice, or refers to itself.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; name a suite's YAML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{file}:1: the file is empty; a suite needs `probes:`")
        return _locate(file, loader, node, "", ())
    except RecursionError:
        raise ConfigError(f"{file}: is nested too deeply") from None
    except ValueError as error:  # a number or date that Python cannot hold
        raise ConfigError(f"{file}: a value cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{mark.line + 1}" if mark is not None else "?"
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{file}:{line}: no valid YAML: {' '.join(problem.split())}") from None


def _locate(file: Path, loader: yaml.SafeLoader, node: yaml.Node, where: str, above: tuple) -> Located:
    if any(one is node for one in above):
        raise ConfigError(f"{file}:{node.start_mark.line + 1}: {where}: an alias refers to what it is part of")
    above = (*above, node)
    if isinstance(node, yaml.MappingNode):
        _no_twice(file, loader, node, where)
        loader.flatten_mapping(node)
        located = Located(file, node, {}, where)
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            child = _locate(file, loader, value_node, f"{where}.{key}".lstrip("."), above)
            located._children[key], located.value[key] = child, child.value
        return located
    if isinstance(node, yaml.SequenceNode):
        located = Located(file, node, [], where)
        for index, entry in enumerate(node.value):
            child = _locate(file, loader, entry, f"{where}[{index}]", above)
            located._children[index] = child
            located.value.append(child.value)
        return located
    value = loader.construct_object(node, deep=True)
    if value is not None and not isinstance(value, (str, int, float, bool)):
        kind = type(value).__name__
        raise ConfigError(
            f"{file}:{node.start_mark.line + 1}: {where}: YAML reads this as a {kind}, JSON has none: put it in quotes"
        )
    return Located(file, node, value, where)


def _no_twice(file: Path, loader: yaml.SafeLoader, node: yaml.MappingNode, where: str) -> None:
    seen: dict = {}
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{file}:{line}: {where}: a key must be text, not a list or mapping")
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            raise ConfigError(f"{file}:{line}: {where}: the key {key_node.value} must be text: put it in quotes")
        if key in seen:
            raise ConfigError(f"{file}:{line}: {where}: the key {key!r} stands here twice (first in line {seen[key]})")
        seen[key] = line


def _short(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
