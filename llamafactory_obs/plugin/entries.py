"""The `callbacks:` list: from what stands in the config to checked classes, and from those to instances.

Forms of one item (the mapping form is that of LlamaFactory pull request 9024):

    - vram                                     a short name
    - layer_norms: {every: 10}                 a short name or dotted path with options
    - my_package.callbacks.MyCallback          any TrainerCallback, by dotted path
    - {name: /abs/file.py:MyCallback, args: {key: "${MY_KEY:-none}"}}
"""

import inspect
from dataclasses import dataclass

from ..errors import ConfigError
from .names import did_you_mean
from .registry import OWN, one_line, resolve
from .variables import expand

#: arguments of LlamaFactory that a constructor gets when it names them and the config does not
INJECTED = ("model_args", "data_args", "training_args", "finetuning_args", "generating_args")


@dataclass(frozen=True)
class Entry:
    """One checked item: where it stands, the class behind it, its keyword arguments, and which texts in them came
    from the environment (perhaps a secret)."""

    where: str
    name: str
    cls: type
    kwargs: dict
    hidden: frozenset[str] = frozenset()

    @property
    def is_own(self) -> bool:
        return self.name in OWN

    def build(self, injected: dict | None = None):
        """Make the callback.

        Args:
            injected: LlamaFactory's argument objects by name, given where `__init__` asks for them.

        Raises:
            ConfigError: the constructor refuses its arguments.
        """
        wanted = inspect.signature(self.cls).parameters
        extra = {k: v for k, v in (injected or {}).items() if k in wanted and k not in self.kwargs}
        try:
            return self.cls(**extra, **self.kwargs)
        except (Exception, SystemExit) as error:
            what = " ".join(str(error).split()) if isinstance(error, ValueError) else one_line(error)
            raise ConfigError(f"{self.where} ({self.name}): {what}") from error


def parse_entries(block: object) -> list[Entry]:
    """Check the whole `callbacks:` value. Nothing is skipped in silence.

    Raises:
        ConfigError: naming the entry and, for an unknown name or option, the nearest known one.
    """
    if block is None:
        return []
    items = [block] if isinstance(block, str) else block
    if not isinstance(items, (list, tuple)):
        raise ConfigError(f"callbacks: must be a list, got {type(items).__name__} {items!r}")
    entries = [_parse_item(f"callbacks[{i}]", item) for i, item in enumerate(items)]
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.is_own and entry.name in seen:
            raise ConfigError(f"{entry.where}: {entry.name} is already named in {seen[entry.name]}; name it once")
        seen[entry.name] = entry.where
    return entries


def _parse_item(where: str, item: object) -> Entry:
    name, kwargs = _split_item(where, item)
    found: set[str] = set()
    kwargs = expand(where, kwargs, found)
    cls = resolve(name, where)
    _check_arguments(where, name, cls, kwargs)
    entry = Entry(where, name, cls, kwargs, frozenset(found))
    if entry.is_own:
        entry.build()  # our constructors have no side effects: a bad value is found here, before anything starts
    return entry


def _split_item(where: str, item: object) -> tuple[str, dict]:
    if isinstance(item, str) and item:
        return item, {}
    if not isinstance(item, dict) or not item:
        raise ConfigError(f"{where}: must be a name or a mapping, got {item!r}")
    if "name" in item:
        for key in item:
            if key not in ("name", "args"):
                raise ConfigError(f"{where}: unknown key {key!r}; the mapping form is {{name: ..., args: {{...}}}}")
        name, options = item["name"], item.get("args")
    elif len(item) == 1:
        name, options = next(iter(item.items()))
    else:
        raise ConfigError(
            f"{where}: has no `name` (keys: {', '.join(map(str, item))}); write {{name: ..., args: {{...}}}}"
            " or one name with its options"
        )
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}: name must be text, got {name!r}")
    if options is None:
        options = {}
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise ConfigError(f"{where} ({name}): options must be a mapping, got {options!r}")
    return name, options


def _check_arguments(where: str, name: str, cls: type, kwargs: dict) -> None:
    parameters = inspect.signature(cls).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        known = None  # takes anything
    else:
        known = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for key in kwargs:
        if known is not None and key not in known:
            hint = did_you_mean(key, known) or f" (known: {', '.join(known) or 'none'})"
            raise ConfigError(f"{where}: {name} has no option {key!r}{hint}")
    for parameter in parameters.values():
        required = parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        )
        if required and parameter.name not in kwargs and parameter.name not in INJECTED:
            raise ConfigError(f"{where}: {name} needs the option {parameter.name!r}")
