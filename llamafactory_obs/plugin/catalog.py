"""`llamafactory-obs callbacks`: every name for `callbacks:`, its options with their docstrings, and what it logs."""

import ast
import dataclasses
import importlib
import importlib.metadata
import inspect
import textwrap

from ..errors import ConfigError
from ..texts import text
from ..texts.wrap import wrapped
from .entries import INJECTED
from .registry import GROUP, HOST, OWN, known_names

WIDTH = 80


def collect() -> dict:
    """What can be named.

    Returns:
        `{"callbacks": [{"name", "class", "source", "doc", "options": [{"name", "type", "default", "required", "doc"}],
        "keys": [{"name", "unit", "reduce", "doc"}], "error": None|str}], "core_keys": [...]}`; own names first.

    Raises:
        ConfigError: transformers or torch is not installed.
    """
    try:
        import transformers.trainer_callback  # noqa: F401

        from ..callbacks.basics import Basics
    except ImportError as error:
        raise ConfigError(
            f'the callbacks need transformers and torch ({error}): pip install "llamafactory-obs[train]"'
        ) from error
    owners = {point.name: point.dist.name for point in importlib.metadata.entry_points(group=GROUP)}
    rows = []
    for name, target in sorted(known_names().items(), key=lambda item: (item[0] not in OWN, item[0] in HOST)):
        source = "llamafactory-obs" if name in OWN else "transformers" if name in HOST else owners.get(name)
        rows.append({"name": name, "class": target, "source": source, **_describe(target)})
    return {"callbacks": rows, "core_keys": [dataclasses.asdict(key) for key in Basics.keys]}


def _describe(target: str) -> dict:
    module, _, name = target.partition(":")
    try:
        cls = getattr(importlib.import_module(module), name)
        doc = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
        keys = [dataclasses.asdict(key) for key in getattr(cls, "keys", ())]
        return {"doc": " ".join(doc.split()), "options": _options(cls), "keys": keys, "error": None}
    except Exception as error:  # another distribution's name that does not load: listed, with the reason
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return {"doc": "", "options": [], "keys": [], "error": reason}


def _options(cls: type) -> list[dict]:
    written = _fields(cls)
    rows = []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in INJECTED:
            continue
        required = parameter.default is parameter.empty
        annotation, doc = written.get(parameter.name, (None, ""))
        if annotation is None and parameter.annotation is not parameter.empty:
            annotation = inspect.formatannotation(parameter.annotation)
        default = None if required else parameter.default
        if not isinstance(default, (type(None), bool, int, float, str, list, dict)):
            default = list(default) if isinstance(default, tuple) else str(default)
        rows.append({"name": parameter.name, "type": annotation, "default": default, "required": required, "doc": doc})
    return rows


def _fields(cls: type) -> dict[str, tuple[str, str]]:
    """Field -> (type as written, the string literal under it), read from the source of the class and its bases."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        except (OSError, TypeError, SyntaxError):
            continue  # no source at hand
        for statement, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                literal = after.value if isinstance(after, ast.Expr) else None
                text = literal.value if isinstance(literal, ast.Constant) and isinstance(literal.value, str) else ""
                found[statement.target.id] = (_type_text(statement.annotation), " ".join(text.split()))
    return found


def _type_text(annotation: ast.expr) -> str:
    """`Literal["warn", "save"]` -> `warn | save`; anything else as written."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Literal"):
        choices = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return " | ".join(str(ast.literal_eval(choice)) for choice in choices)
    return ast.unparse(annotation)


def render(result: dict) -> str:
    """The list for a terminal of 80 columns."""
    lines = []
    for row in result["callbacks"]:
        lines += [
            row["name"] + ("" if row["source"] == "llamafactory-obs" else text("catalog.source", source=row["source"]))
        ]
        lines += _wrap(row["doc"] or (text("catalog.error", error=row["error"]) if row["error"] else ""), 2)
        if row["options"]:
            lines += ["", text("catalog.options")]
        for option in row["options"]:
            default = (
                text("catalog.required")
                if option["required"]
                else text("catalog.default", value=_yaml_word(option["default"]))
            )
            lines += _wrap(f"{option['name']}: {option['type'] or 'any'}, {default}", 4)
            lines += _wrap(option["doc"], 8)
        if row["keys"]:
            lines += ["", text("catalog.logs"), *_render_keys(row["keys"])]
        lines += [""]
    lines += [text("catalog.core"), *_render_keys(result["core_keys"])]
    lines += ["", text("catalog.others")]
    return "\n".join(lines)


def _render_keys(keys: list[dict]) -> list[str]:
    lines = []
    for key in keys:
        how = "; ".join(part for part in (key["unit"], key["reduce"]) if part not in ("1", "same"))
        lines += _wrap(f"{key['name']}{f' ({how})' if how else ''}: {key['doc']}", 4, hang=4)
    return lines


def _wrap(said: str, indent: int, hang: int = 0) -> list[str]:
    return wrapped(said, WIDTH, " " * indent, " " * (indent + hang)) if said else []


def _yaml_word(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
