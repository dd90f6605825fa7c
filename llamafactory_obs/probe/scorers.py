"""The user's own scorers, looked at before anything is generated."""

import importlib

from ..errors import ConfigError
from ..plugin.registry import see_current_folder
from ..suite.model import Suite


def check_scorers(suite: Suite) -> None:
    """Import each scorer that a suite names.

    Raises:
        ConfigError: one cannot be imported; with its line in the suite.
    """
    see_current_folder()
    for probe in suite.probes:
        if probe.expect.scorer is not None:
            module, _, name = probe.expect.scorer.rpartition(".")
            try:
                getattr(importlib.import_module(module), name)
            except (Exception, SystemExit) as error:
                said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                raise ConfigError(f"{suite.path}:{probe.line}: scorer {probe.expect.scorer}: {said}") from None
