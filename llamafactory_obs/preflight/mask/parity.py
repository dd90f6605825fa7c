"""Does the training template render a conversation to the tokens that the model's own chat template gives?"""

import re
from dataclasses import dataclass

from ... import texts
from ...errors import ConfigError
from ...probe.facts import RENDERING
from ...probe.render.choose import generation_stops
from ...probe.render.served import ServedTemplate
from ...probe.render.trained import TrainedTemplate
from ...suite.model import Expect, Probe, Tool
from ..result import FAIL, PASS, SKIPPED, WARN, Check

_MARK = re.compile(r"<\|[^|<>\s]+\|>")
_ASK = {"role": "user", "content": "What is 2+2?"}
_MORE = [_ASK, {"role": "assistant", "content": "It is 4."}, {"role": "user", "content": "And 3+3?"}]
_TOOL = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]})


@dataclass(frozen=True)
class Case:
    """One conversation rendered both ways."""

    name: str
    messages: list[dict]
    system: str
    tools: tuple = ()


CASES = (
    Case("system and question", [_ASK], "Be brief."),
    Case("two turns", _MORE, "Be brief."),
    Case("no system text", [_ASK], ""),
    Case("tools", [_ASK], "Be brief.", (_TOOL,)),
)


def check_parity(tokenizer, original, data_args, model: str, uses_tools: bool) -> list[Check]:
    """Compare on `CASES`.

    Args:
        tokenizer: as LlamaFactory changed it for the template.
        original: the model's own, before that.
        data_args: LlamaFactory's data arguments.
        model: where the model lies, for its generation config.
        uses_tools: the data has tools, so that a difference there matters.
    """
    settings = {name: getattr(data_args, name) for name in RENDERING if getattr(data_args, name) is not None}
    if settings.get("template") is None:
        why = texts.text("mask.parity.no_template")
        return [Check(name, SKIPPED, None, None, why) for name in ("template_tokens", "template_parity")]
    ours = TrainedTemplate(tokenizer, settings, texts.text("mask.parity.own"))
    checks = [_tokens(original, settings["template"])]
    try:
        theirs = ServedTemplate(original, generation_stops(model), "", None, settings.get("enable_thinking"))
    except ConfigError:
        why = texts.text("mask.parity.no_chat_template")
        return [*checks, Check("template_parity", SKIPPED, None, "the same tokens", why)]
    checks.append(_parity(ours, theirs, uses_tools))
    stop = ours.trained_stop
    names = [theirs.text([token]) for token in theirs.stop_ids]
    if stop is not None and stop not in theirs.stop_ids:
        text = texts.text("mask.parity.stops", stop=ours.text([stop]), names=names)
        checks.append(Check("stop_token", WARN, ours.text([stop]), names, text))
    elif stop is not None:
        checks.append(Check("stop_token", PASS, ours.text([stop]), names, texts.text("mask.parity.stops_same")))
    return checks


def _parity(ours: TrainedTemplate, theirs: ServedTemplate, uses_tools: bool) -> Check:
    notes, wrong, same = [], [], 0
    for case in CASES:
        if case.name == "tools" and not uses_tools:
            continue
        asked = Probe(case.name, "", tuple(case.messages), case.system, case.tools, (), 1, Expect())
        try:
            one, two = ours.encode(case.messages, asked), theirs.encode(case.messages, asked)
        except Exception as error:  # whatever a chat template raises
            notes.append(f"{case.name}: {' '.join(f'{type(error).__name__}: {error}'.split())[:120]}")
            continue
        if one == two:
            same += 1
            continue
        notes.append(f"{case.name}: {difference(ours, one, two)}")
        if not case.tools and _turn_ends(ours, one, case) != _turn_ends(ours, two, case):
            wrong.append(notes[-1])
    want = "the same tokens"
    if not notes:
        return Check(
            "template_parity",
            PASS,
            "the same",
            want,
            texts.text("mask.parity.same", same=same),
        )
    text = texts.text("mask.parity.against") + "; ".join(wrong or notes)
    if wrong:
        fix = texts.text("mask.parity.use_own")
        return Check("template_parity", FAIL, f"{len(wrong)} differ", want, text, fix, confirmable=True)
    return Check("template_parity", WARN, f"{len(notes)} differ", want, text)


def _turn_ends(renderer: TrainedTemplate, ids: list[int], case: Case) -> str:
    """How a question is closed and an answer opened, without the marks of thoughts: there templates must agree.

    Before that they may differ and still be each other's: a default system text, today's date, thoughts of the past.
    """
    from llamafactory.data.template import TEMPLATES

    text = renderer.text(ids).rpartition(case.messages[-1]["content"])[2]
    for word in TEMPLATES[renderer.rendering.name].thought_words:
        text = text.replace(word.strip(), "")
    return text.strip()


def difference(renderer, ours: list[int], theirs: list[int]) -> str:
    """The first difference of two renderings, in words."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    start = max(0, at - 3)
    one, two = (renderer.text(ids[start : at + 8]).strip("\ufffd") for ids in (ours, theirs))
    return texts.text("mask.parity.difference", ours=len(ours), theirs=len(theirs), at=at, one=one, two=two)


def _tokens(original, template: str) -> Check:
    """The template's marks (`<|im_start|>`) are one token each in the model's tokenizer."""
    from llamafactory.data.template import TEMPLATES

    used = TEMPLATES[template]
    slots = [slot for name in ("prefix", "system", "user", "assistant") for slot in _texts(used, name)]
    marks = sorted({mark for slot in (*slots, *used.stop_words) for mark in _MARK.findall(slot)})
    chat = original.chat_template
    known = chat if isinstance(chat, str) else str(chat or "")
    bad = [m for m in marks if m not in known and len(original.encode(m, add_special_tokens=False)) != 1]
    want = "one token each"
    if not bad:
        return Check(
            "template_tokens", PASS, 0, want, texts.text("mask.parity.marks", count=len(marks), template=template)
        )
    text = texts.text("mask.parity.no_marks", template=template, marks=", ".join(bad))
    return Check(
        "template_tokens", FAIL, len(bad), want, text, texts.text("mask.parity.use_own_template"), confirmable=True
    )


def _texts(template, name: str) -> list[str]:
    return [slot for slot in getattr(template, f"format_{name}").slots if isinstance(slot, str)]
