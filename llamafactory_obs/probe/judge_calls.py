"""The calls of a conversation against those that the probe expects."""

import json
from collections.abc import Sequence

from jsonschema import Draft202012Validator

from ..suite.model import AfterError, Call, ExpectedCall, Probe
from ..suite.values import fits, same
from .formats.build import kind
from .formats.json_text import shown
from .judge_answers import asks
from .notes import Notes
from .turns import Attempt, Turn

_PARSED = frozenset({"several_in_block", "no_name", "no_arguments", "arguments_as_text", "arguments_not_object"})
_CLOSED = frozenset({"invalid_json", "invalid_syntax"})


def calls(probe: Probe, turns: Sequence[Turn], notes: Notes) -> tuple[bool | None, bool | None]:
    """Notes what is wrong with the calls; returns the layers tool_choice and arguments (see `judge.Verdict`)."""
    tried = [attempt for turn in turns for attempt in turn.attempts]
    known = {tool.name for tool in probe.tools}
    expect = probe.expect
    for attempt in tried:
        if attempt.error is None and attempt.name not in known:
            notes.add("unknown_tool", f"{attempt.name!r}; there is {', '.join(sorted(known)) or 'no tool'}")
    _turns_used(probe, turns, tried, notes)
    choice = all(attempt.name in known for attempt in tried) if tried else None
    if expect.calls is not None:
        choice, arguments = _sequence(probe, turns, tried, expect.calls, notes)
    else:
        arguments = _schemas(probe, _judged(probe, turns), tried, notes)
    if expect.after_error is not None:
        right, asked = _recovery(probe, turns, expect.after_error, notes)
        if expect.calls is None:
            choice = bool(choice) or (not tried and asked)
            arguments = True if right else None if asked else False
    return choice, arguments


def rung(probe: Probe, tried: Sequence[Attempt]) -> str:
    """How far the first call got."""
    if not tried:
        return "none"
    first = tried[0]
    if first.error is not None:
        return "parsed" if first.error in _PARSED else "closed" if first.error in _CLOSED else "attempted"
    if first.name not in {tool.name for tool in probe.tools}:
        return "parsed"
    if violations(probe, first.call):
        return "known_name"
    expect = probe.expect
    if expect.calls:
        wanted = expect.calls[0]
        right = first.name == wanted.name and not _wrong(wanted, first.arguments)
    else:
        retry = expect.after_error.retry if expect.after_error else None
        right = retry is not None and fits(first.arguments, retry)
    return "expected" if right else "valid_arguments"


def violations(probe: Probe, call: Call) -> dict[str, str]:
    """Where the arguments break the tool's schema: the argument ("" for the whole) -> the reason in words."""
    schema = next((tool.parameters for tool in probe.tools if tool.name == call.name), None)
    if schema is None:
        return {}
    try:
        found = sorted(Draft202012Validator(schema).iter_errors(call.arguments), key=lambda error: str(error.path))
    except Exception as error:  # a schema that refers to nothing, arguments nested too deeply
        return {"": f"cannot be checked against the schema: {type(error).__name__}: {shown(str(error))}"}
    reasons: dict[str, str] = {}
    for error in found:
        path = ".".join(map(str, error.absolute_path))
        reasons.setdefault(path, f"{path or 'the arguments'}: {_reason(error)}")
    return reasons


def _reason(error) -> str:
    if error.validator == "enum":
        return f"{_shown(error.instance)} is none of {', '.join(map(_shown, error.validator_value))}"
    if error.validator == "type":
        return f"{_shown(error.instance)} is {kind(error.instance)}, not {error.validator_value}"
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"{', '.join(missing)} is missing"
    return error.message[:200]


def _shown(value: object) -> str:
    return shown(json.dumps(value, ensure_ascii=False, default=str))


def _as_text(name: str | None, arguments: object) -> str:
    if not isinstance(arguments, dict):
        return f"{name}({_shown(arguments)})"
    return f"{name}({', '.join(f'{key}={_shown(value)}' for key, value in arguments.items())})"


def _tried(attempt: Attempt) -> str:
    if attempt.error is not None:
        return f"a broken call, {shown(attempt.text)!r}"
    return _as_text(attempt.name, attempt.arguments)


def _wanted(expected: ExpectedCall) -> str:
    values = (f"{key}={' or '.join(map(_shown, right))}" for key, right in expected.arguments.items())
    return f"{expected.name}({', '.join(values)})"


def _sequence(
    probe: Probe, turns: Sequence[Turn], tried: list[Attempt], expected: tuple[ExpectedCall, ...], notes: Notes
) -> tuple[bool, bool | None]:
    """The calls must be these, in this order; a broken one takes the place of the one that it was meant to be."""
    if not expected:
        for attempt in tried:
            notes.add("unexpected_call", _tried(attempt))
        return not tried, _schemas(probe, [one.call for one in tried if not one.error], tried, notes)
    if not tried:
        said = shown(turns[-1].says) if turns else ""
        notes.add("missing_call", f"no call; {_wanted(expected[0])} was expected; the answer is {said!r}")
        return False, False
    right = [_pair(probe, one, wanted, notes) for one, wanted in zip(tried, expected, strict=False)]
    for attempt in tried[len(expected) :]:
        notes.add("extra_call", f"{_tried(attempt)} after the {len(expected)} expected")
        if attempt.error is None:
            _schemas(probe, [attempt.call], [attempt], notes)
    for wanted in expected[len(tried) :]:
        notes.add("missing_later_call", f"{_wanted(wanted)} was not made")
    names = [attempt.name for attempt in tried] == [wanted.name for wanted in expected]
    return names, all(right) and len(tried) >= len(expected)


def _pair(probe: Probe, attempt: Attempt, wanted: ExpectedCall, notes: Notes) -> bool:
    if attempt.error is not None:
        return False  # its form is noted; nobody knows what its arguments would have been
    if attempt.name != wanted.name:
        if any(tool.name == attempt.name for tool in probe.tools):
            notes.add("wrong_tool", f"{attempt.name}, expected {wanted.name}")
        return False
    broken = violations(probe, attempt.call)
    for reason in broken.values():
        notes.add("invalid_arguments", reason)
    missing = broken.get("", "")
    wrong = {
        name: reason
        for name, reason in _wrong(wanted, attempt.arguments).items()
        if name not in broken and not (name not in attempt.arguments and name in missing)
    }
    if wrong:
        notes.add("wrong_arguments", "; ".join(wrong.values()))
    return not broken and not wrong


def _wrong(wanted: ExpectedCall, arguments: dict) -> dict[str, str]:
    """Argument -> what it is and should be, for those that are not right."""
    wrong = {}
    for name, values in wanted.arguments.items():
        should = f"expected {' or '.join(map(_shown, values))}"
        if name not in arguments:
            wrong[name] = f"{name} is missing, {should}"
        elif not any(same(arguments[name], value) for value in values):
            wrong[name] = f"{name} is {_shown(arguments[name])}, {should}"
    for name in arguments.keys() - wanted.arguments.keys() - set(wanted.optional):
        wrong[name] = f"{name} is {_shown(arguments[name])}, expected to be left out"
    return dict(sorted(wrong.items()))


def _schemas(probe: Probe, made: Sequence[Call], tried: Sequence[Attempt], notes: Notes) -> bool | None:
    """Do the calls fit the schema? None where none was tried; False too where one was not made for its form."""
    reasons = [reason for call in made for reason in violations(probe, call).values()]
    for reason in reasons:
        notes.add("invalid_arguments", reason)
    return not reasons and not any(attempt.error for attempt in tried) if tried else None


def _error_turn(turns: Sequence[Turn]) -> int | None:
    """The first answer that the tool answered with an error."""
    return next((at for at, turn in enumerate(turns) if any(reply.error for reply in turn.replies)), None)


def _judged(probe: Probe, turns: Sequence[Turn]) -> list[Call]:
    """The calls whose arguments must fit the schema.

    Where the probe is about an error of the tool, running into it is no error, and repeating it has its own class.
    """
    after = probe.expect.after_error
    at = _error_turn(turns) if after else None
    if at is None:
        return [call for turn in turns for call in turn.calls]
    later = [call for turn in turns[at + 1 :] for call in turn.calls]
    return [call for call in later if not (after.no_repeat and fits(call.arguments, after.no_repeat))]


def _recovery(probe: Probe, turns: Sequence[Turn], after: AfterError, notes: Notes) -> tuple[bool, bool]:
    """Notes what did not follow the tool's error; returns: was the right call made, was the user rightly asked?"""
    at = _error_turn(turns)
    made = [call for turn in turns[at or 0 :] for call in turn.calls]
    right = after.retry is not None and any(fits(call.arguments, after.retry) for call in made)
    asked = after.or_ask and asks(probe, turns)
    if at is None:
        if not (right or asked) and after.retry is not None and probe.expect.calls is None:
            _no_error_met(turns, after.retry, made, notes)
        return right, asked
    if after.no_repeat:
        for call in (call for turn in turns[at + 1 :] for call in turn.calls):
            if fits(call.arguments, after.no_repeat):
                notes.add("repeated_refused", f"{_as_text(call.name, call.arguments)} again, after it was refused")
    if not (right or asked) and (after.retry is not None or after.or_ask):
        error = next(reply.text for reply in turns[at].replies if reply.error)
        notes.add("not_recovered", f"the tool said {shown(error)}; the last answer is {shown(turns[-1].body)!r}")
    return right, asked


def _no_error_met(turns: Sequence[Turn], retry: dict[str, list], made: list[Call], notes: Notes) -> None:
    """Not called at all, or called with legal values that are not the right ones."""
    if made:
        wrong = _wrong(ExpectedCall(made[-1].name, retry, tuple(made[-1].arguments)), made[-1].arguments)
        notes.add("wrong_arguments", "; ".join(wrong.values()))
    elif not any(turn.attempts for turn in turns):
        said = shown(turns[-1].says) if turns else ""
        notes.add("missing_call", f"no call and no question; the answer is {said!r}")


def _turns_used(probe: Probe, turns: Sequence[Turn], tried: list[Attempt], notes: Notes) -> None:
    """Still calling in the last answer that is allowed; not where every call so far is one of those expected."""
    all_expected = bool(probe.expect.calls) and len(tried) <= len(probe.expect.calls)
    if turns and len(turns) >= probe.max_turns and turns[-1].attempts and not all_expected:
        notes.add("too_many_turns", f"answer {len(turns)} of at most {probe.max_turns} still calls")
