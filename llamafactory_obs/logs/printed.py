"""Rows that the Trainer prints: Python dicts, between progress bars and other people's lines."""

import ast
import json
import re
import warnings

_DICT = re.compile(r"\{\s*['\"][^{}\n]*\}")
_WORDS = re.compile(r"(?<=[:\[, ])\s*(-?(?:nan|inf|Infinity|NaN)|null|true|false)\b(?=\s*[,}\]])")
_PYTHON = {"null": "None", "true": "True", "false": "False"}
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2032": "'", "\u00b4": "'"})
_TENSOR = re.compile(r"\b(?:tensor|np\.float\d+|float|array)\(\s*([^(),]*)[^()]*\)")
LONGEST = 1 << 20


def find_dicts(line: str) -> list[str]:
    """The texts of the dicts in one line that could be rows."""
    if "{" not in line or len(line) > LONGEST:
        return []
    return _DICT.findall(line.translate(_QUOTES))


def parse_printed(text: str) -> dict | None:
    """A printed dict (`{'loss': '1.522', 'grad_norm': nan}`) as a mapping, None where it is none."""
    text = text.translate(_QUOTES)
    if not text.startswith("{") or len(text) > LONGEST:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        text = _TENSOR.sub(r"\1", text)
        text = _WORDS.sub(lambda match: _PYTHON.get(match[1], f"'{match[1]}'"), text)
        try:
            with warnings.catch_warnings(action="ignore"):  # Python remarks on odd literals in what is no row
                value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return None
    return value if isinstance(value, dict) else None
