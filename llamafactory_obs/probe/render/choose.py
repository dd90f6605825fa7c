"""Which way prompts are rendered for a checkpoint, and whether training and serving agree."""

import json
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...suite.model import Suite
from ..facts import RunFacts
from . import Renderer, trained
from .served import ServedTemplate
from .tokenizer import load_tokenizer
from .trained import TrainedTemplate


@dataclass(frozen=True)
class Mismatch:
    """What was trained is not what will be served.

    Attributes:
        what: `prompt` (other tokens) | `cannot_render` (the chat template fails) | `no_chat_template` |
            `chat_template_changed` (against the base model's) | `stop_token`.
        text: one line for people.
        evidence: `{"probe", "at", "trained", "served"}` as far as it applies; texts around the first difference.
    """

    what: str
    text: str
    evidence: dict


def choose(folder: Path, facts: RunFacts, template: str | None, tool_format: str | None) -> Renderer:
    """The renderer for a checkpoint.

    Args:
        folder: the checkpoint (its private copy).
        facts: of the run.
        template: LlamaFactory's template by name, or "chat" for the checkpoint's chat template; None: the run's.
        tool_format: overrides the format that calls are read in.

    Raises:
        ConfigError: the template asked for cannot be had here.
    """
    name = template or facts.template
    unknown = bool(name and not template and trained.available() and not trained.knows(name))
    if name and name != "chat" and not unknown:
        if trained.available():
            why = "given by --template" if template else "the run's own"
            settings = {**facts.rendering, "template": name} | ({"tool_format": tool_format} if tool_format else {})
            return TrainedTemplate(load_tokenizer(folder, facts.model), settings, why)
        if template:
            raise ConfigError(f"--template {name}: LlamaFactory is not installed here; leave it out or use `chat`")
    why = (
        f"this LlamaFactory does not know the run's template {name}"
        if unknown
        else {
            (True, False): f"the run's template is {name}, but LlamaFactory is not installed here",
            (False, False): "the run's template is not known; --template NAME gives it",
            (False, True): "asked for by --template chat",
        }[(bool(name) and name != "chat", template == "chat")]
    )
    return served(folder, facts, why, tool_format)


def served(folder: Path, facts: RunFacts, why: str, tool_format: str | None = None) -> ServedTemplate:
    """The checkpoint's chat template."""
    tokenizer = load_tokenizer(folder, facts.model)
    return ServedTemplate(
        tokenizer, generation_stops(folder, facts.model), why, tool_format, facts.rendering.get("enable_thinking")
    )


def generation_stops(*folders: Path | str | None) -> list[int]:
    """The end tokens of the first `generation_config.json` (else `config.json`) found; a server stops at them."""
    for folder in folders:
        for name in ("generation_config.json", "config.json"):
            try:
                ends = json.loads((Path(folder or "") / name).read_text(encoding="utf-8")).get("eos_token_id")
            except (OSError, ValueError):
                continue
            if ends is not None:
                return list(ends) if isinstance(ends, list) else [ends]
    return []


def compare(renderer: Renderer, folder: Path, facts: RunFacts, suite: Suite) -> list[Mismatch]:
    """How the prompts of a suite differ between training and serving; empty where they agree or nothing is known."""
    if not isinstance(renderer, TrainedTemplate):
        return []
    found: list[Mismatch] = []
    try:
        other = served(folder, facts, "")
    except ConfigError:
        text = "the checkpoint has no chat template: a server cannot render the prompts that were trained"
        return [Mismatch("no_chat_template", text, {})]
    for probe in suite.probes:
        messages = list(probe.messages)
        ours = renderer.encode(messages, probe)
        try:
            theirs = other.encode(messages, probe)
        except Exception as error:  # whatever a template raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            text = f"the checkpoint's chat template cannot render probe {probe.name!r}: {reason}"
            found.append(Mismatch("cannot_render", text, {"probe": probe.name}))
            break
        if ours != theirs:
            found.append(_difference(renderer, probe.name, ours, theirs))
            break
    found += _changed_template(other, facts.model)
    stop = renderer.trained_stop
    if stop is not None and stop not in other.stop_ids:
        names = [renderer.text([token]) for token in other.stop_ids]
        text = (
            f"training ends an answer with {renderer.text([stop])!r}, a server stops only at {names}: it would run on"
        )
        found.append(Mismatch("stop_token", text, {"trained": renderer.text([stop]), "served": names}))
    return found


def _changed_template(other: ServedTemplate, model: str | None) -> list[Mismatch]:
    """A server of the base model with this adapter renders with the base model's chat template, not this one's."""
    if model is None or not Path(model).is_dir():
        return []
    try:
        base = served(Path(model), RunFacts(), "")
    except (ConfigError, OSError, ValueError):
        return []
    if base.chat_template.strip() == other.chat_template.strip():
        return []
    names = {"base": base.rendering.name, "checkpoint": other.rendering.name}
    text = (
        f"the checkpoint's chat template ({names['checkpoint']}) is not the base model's ({names['base']}): "
        "vLLM renders requests to a LoRA adapter with the base model's"
    )
    return [Mismatch("chat_template_changed", text, names)]


def _difference(renderer: Renderer, probe: str, ours: list[int], theirs: list[int]) -> Mismatch:
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    start = max(0, at - 4)
    one, two = (renderer.text(ids[start : at + 12]).strip("\ufffd") for ids in (ours, theirs))  # half a character
    text = (
        f"what was trained is not what will be served: {len(ours)} tokens by the template, {len(theirs)} by the chat "
        f"template (probe {probe}), first difference at token {at}: {one!r} against {two!r}"
    )
    return Mismatch("prompt", text, {"probe": probe, "at": at, "trained": one, "served": two})
