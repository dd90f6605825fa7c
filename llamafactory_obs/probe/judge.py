"""The verdict on one conversation: which classes of error it has, and how far its calls got."""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..suite.model import Probe
from . import judge_answers, judge_calls
from .formats import FORM_ERRORS
from .notes import Notes
from .turns import Turn

# From the most basic to the most special: a text that does not end is named before the call that it spoils.
ORDER = (
    "no_end_token",
    "repetition",
    "template_leak",
    *FORM_ERRORS,
    "missing_call",
    "unexpected_call",
    "unknown_tool",
    "wrong_tool",
    "invalid_arguments",
    "wrong_arguments",
    "missing_later_call",
    "extra_call",
    "repeated_refused",
    "not_recovered",
    "too_many_turns",
    "invented_result",
    "empty_answer",
    "missing_text",
)
LAYERS = ("format", "tool_choice", "arguments", "task")


# What explains least stands back where one word must do: a broken call often neither ends nor leaves repeating itself.
_LAST = ("no_end_token", "repetition", "template_leak")


def headline(errors: Sequence[str]) -> str:
    """The one error that says most: a call where none may be, then a broken call, then the rest."""
    if "unexpected_call" in errors:
        return "unexpected_call"
    return next((error for error in errors if error not in _LAST), errors[0] if errors else "wrong")


@dataclass(frozen=True)
class Verdict:
    """What is to be said about one conversation.

    Attributes:
        passed: no error at all.
        errors: classes, in the order of `ORDER`, then those of the probe's scorer; no doubles.
        details: one line per error, in the same order: `class: what it is, what it should be`.
        layers: "format": is every call that was tried well-formed; None where none was tried. "tool_choice": were the
            right tools called, or none where none is right. "arguments": do the calls have the right arguments (where
            none is named: do they fit the schema); a call that is missing has not. "task": passed. True, False or None
            (does not apply).
        rung: how far the first call got: "none", "attempted", "closed", "parsed", "known_name", "valid_arguments",
            "expected" (the right call of the probe).
    """

    passed: bool
    errors: tuple[str, ...]
    details: tuple[str, ...]
    layers: dict[str, bool | None]
    rung: str


def judge(probe: Probe, turns: Sequence[Turn], special_tokens: Iterable[str] = ()) -> Verdict:
    """Judges a conversation by the expectations of its probe. Never raises; the same input gives the same verdict.

    Args:
        turns: the model's answers in order, each with what the simulated tool replied.
        special_tokens: the tokenizer's, to find those of the chat template in an answer.
    """
    notes = Notes()
    judge_answers.generation(turns, tuple(special_tokens), notes)
    _forms(turns, notes)
    tool_choice, arguments = judge_calls.calls(probe, turns, notes)
    judge_answers.content(probe, turns, notes)
    _scored(probe, turns, notes)
    errors, details = notes.ordered(ORDER)
    tried = [attempt for turn in turns for attempt in turn.attempts]
    layers = {
        "format": not any(attempt.error for attempt in tried) if tried else None,
        "tool_choice": tool_choice,
        "arguments": arguments,
        "task": not errors,
    }
    return Verdict(not errors, errors, details, layers, judge_calls.rung(probe, tried))


def _forms(turns: Sequence[Turn], notes: Notes) -> None:
    for attempt in (attempt for turn in turns for attempt in turn.attempts):
        if attempt.error:
            notes.add(attempt.error, attempt.detail)


def _scored(probe: Probe, turns: Sequence[Turn], notes: Notes) -> None:
    path = probe.expect.scorer
    if not path:
        return
    try:
        module, _, function = path.rpartition(".")
        found = list(getattr(importlib.import_module(module), function)(probe, list(turns)))
        if not all(isinstance(error, str) and error for error in found):
            raise TypeError(f"it must return a list of error classes, not {found!r}")
    except (Exception, SystemExit) as error:  # the user's own code may do anything
        reason = " ".join(str(error).split())[:200]
        notes.add("scorer_failed", f"{path}: {type(error).__name__}: {reason}")
        return
    for error in found:
        notes.add(error, f"found by {path}")
