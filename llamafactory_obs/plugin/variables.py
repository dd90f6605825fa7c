"""`${NAME}` and `${NAME:-default}` in the texts of our keys."""

import os
import re

from ..errors import ConfigError
from ..identity.redact import MIN_SECRET

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def expand(where: str, value, found: set[str]):
    """Replace each by the environment's value, in every text of a value.

    Args:
        where: for the error line.
        found: collects what came from there: perhaps a secret.

    Raises:
        ConfigError: a variable without a default is not set.
    """
    if isinstance(value, dict):
        return {key: expand(where, item, found) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(where, item, found) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match) -> str:
        name, default = match.groups()
        if name not in os.environ and default is None:
            raise ConfigError(f"{where}: environment variable {name} is not set; set it or write ${{{name}:-default}}")
        text = os.environ.get(name) or default or ""
        if len(text) >= MIN_SECRET:
            found.add(text)
        return text

    return _VARIABLE.sub(replace, value)
