"""What a baseline is measured under: the suite, the rendering of its prompts, the sampling settings."""

import contextlib
from dataclasses import asdict
from pathlib import Path

from ...errors import ConfigError
from ...identity.files import sha256_json
from ...plugin.names import did_you_mean
from ...probe.facts import RENDERING, RunFacts
from ...probe.render import Renderer
from ...probe.render.choose import choose
from ...suite import Suite, load_suite, shipped_suite
from ..run_config import Arguments, RunConfig
from .base_model import BaseModel

#: of `RENDERING`, what has a place of its own in the record
_NAMED = ("template", "tool_format")


def suite_of(config: RunConfig, given: Path | None) -> Suite:
    """The suite that was named, that of `obs: {suite: ...}`, or the three fixed probes.

    Raises:
        ConfigError: it cannot be read.
    """
    return load_suite(given or config.settings.suite or shipped_suite())


def facts_of(config: RunConfig, arguments: Arguments) -> RunFacts:
    """What the record of this run would say."""
    settings = {name: getattr(arguments.data, name, None) for name in RENDERING}
    return RunFacts(
        model=arguments.model.model_name_or_path,
        rendering={name: value for name, value in settings.items() if value is not None},
        quantized=config.given.get("quantization_bit") is not None,
    )


def renderer_of(base: BaseModel, facts: RunFacts) -> Renderer:
    """LlamaFactory's template around the base model's tokenizer; the chat template where the config names none.

    Raises:
        ConfigError: there is no such template, or no tokenizer.
    """
    from llamafactory.data.template import TEMPLATES

    if facts.template is not None and facts.template not in TEMPLATES:
        hint = did_you_mean(facts.template, TEMPLATES)
        raise ConfigError(f"LlamaFactory has no template {facts.template!r}{hint}")
    try:
        return choose(base.folder or base.name, facts, None, None)
    except ConfigError:
        if facts.template is not None:
            raise
        text = f"the config names no template, and {base.name} has no chat template; set template"
        raise ConfigError(text) from None
    except Exception as error:  # whatever transformers raises for a folder that is none of its own
        if base.folder is None:
            get = f"correct model_name_or_path, or hf download {base.name}"
            raise ConfigError(
                f"{base.name} is neither a folder nor on this machine, nor can it be fetched; {get}"
            ) from None
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ConfigError(f"the tokenizer of {base.name} cannot be loaded: {said}") from None


def rendering_of(renderer: Renderer, facts: RunFacts, suite: Suite) -> dict:
    """How the prompts of a suite are made.

    Returns:
        `{"by", "name", "tool_format", "key", "settings", "stop_ids", "prompts_sha256"}`; settings are LlamaFactory's
        other data arguments that change a prompt; the hash is of the first prompt of every probe as token ids.

    Raises:
        ConfigError: the template cannot render a probe.
    """
    prompts = []
    for probe in suite.probes:
        try:
            prompts.append([probe.name, renderer.encode(list(probe.messages), probe)])
        except Exception as error:  # whatever a template raises
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ConfigError(f"probe {probe.name!r} cannot be rendered by {renderer.rendering.key}: {said}") from None
    fields = asdict(renderer.rendering)
    return {
        **{name: fields[name] for name in ("by", "name", "tool_format")},
        "key": renderer.rendering.key,
        "settings": {name: value for name, value in facts.rendering.items() if name not in _NAMED},
        "stop_ids": list(renderer.stop_ids),
        "prompts_sha256": sha256_json(prompts),
    }


def sampling_now(backend: object) -> dict | None:
    """The sampling settings that a backend of this name sends today; None for a name that is none."""
    from ...probe.backends import local, vllm

    return {"vllm": vllm.GREEDY, "local": local.GREEDY}.get(backend) if isinstance(backend, str) else None


def judgeable(suite: Suite) -> dict[str, int]:
    """Layer -> the number of probes that can judge it; see `probe.judge.Verdict`."""
    counts = dict.fromkeys(("format", "tool_choice", "arguments", "task"), 0)
    for probe in suite.probes:
        expect = probe.expect
        open_ended = expect.calls is None and (bool(probe.tools) or expect.after_error is not None)
        counts["format"] += bool(probe.tools)
        counts["tool_choice"] += expect.calls is not None or open_ended
        counts["arguments"] += bool(expect.calls) or open_ended
        counts["task"] += 1
    return counts


def probes_suite(config: RunConfig) -> Suite | None:
    """The suite of the `probe` callback, where it is another file than ours; None where it has none of its own."""
    file = (config.options_of("probe") or {}).get("suite")
    with contextlib.suppress(ConfigError):
        return load_suite(file) if isinstance(file, str) else None
    return None
