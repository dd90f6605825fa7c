"""One probe put to one opened model: the conversation, its verdict and the row of both."""

from collections.abc import Callable
from dataclasses import asdict

from ..suite.model import Probe, Suite
from .backends import Backend, Model
from .converse import converse
from .copies import Taken
from .judge import judge
from .render import Renderer
from .results import make_row


def circumstances(backend: Backend, renderer: Renderer) -> dict:
    """`{"backend", "rendering"}` of a row: what generates, with all its sampling settings, and how prompts are made."""
    return {
        "backend": {"name": backend.name, "where": backend.where, "settings": backend.settings},
        "rendering": {**asdict(renderer.rendering), "key": renderer.rendering.key},
    }


def ask(
    model: Model,
    renderer: Renderer,
    suite: Suite,
    probe: Probe,
    taken: Taken | None,
    about: dict,
    progress: Callable[[int, int], None],
) -> dict:
    """The row of one probe, see `results.make_row`.

    Args:
        taken: the checkpoint that `model` is, None for the base model.
        about: see `circumstances`.
        progress: told the number of the turn (from 1) and of its tokens so far.
    """
    turns, timings = converse(model, renderer, suite, probe, progress)
    verdict = judge(probe, turns, renderer.special_tokens)
    return make_row(suite, probe, taken, turns, timings, verdict, about | {"notes": list(model.notes)})
