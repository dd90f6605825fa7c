"""Asks the untuned base model every probe of a suite and counts what is right."""

import importlib.metadata
import time

from ... import __version__
from ...errors import ConfigError
from ...probe.ask import ask, circumstances
from ...probe.backends import Backend, Refused, Unavailable
from ...probe.backends.choose import choose, make_local
from ...probe.facts import RunFacts
from ...probe.render import Renderer
from ...probe.results import verdict_of
from ...probe.scores import scores
from ...probe.session import Options
from ...probe.show import View, duration
from ...suite import Suite
from ...texts import remembering, text
from ..run_config import RunConfig
from .base_model import BaseModel, fingerprint
from .conditions import judgeable
from .recorded import KIND
from .served_model import serves
from .server import Endpoint

_PACKAGES = ("llamafactory", "transformers", "torch", "tokenizers", "vllm")


def measure(
    config: RunConfig,
    base: BaseModel,
    facts: RunFacts,
    suite: Suite,
    renderer: Renderer,
    rendering: dict,
    options: Options,
    endpoint: Endpoint,
    view: View,
) -> dict:
    """Score the base model; shows each answer.

    Args:
        rendering: see `conditions.rendering_of`.
        options: backend and device.
        view: what people see.

    Returns:
        The record, see docs/baseline.md.

    Raises:
        ConfigError: nothing can generate with this model here, or it breaks off; nothing is recorded then.
    """
    backend = None
    try:
        with remembering() as english:
            backend = _backend(base, facts, options, endpoint, view)
        rows, notes = _ask_all(backend, renderer, suite, view)
    except Unavailable as error:
        cure = "start the server, or generate here with --backend local"
        if backend is not None and backend.name == "local":
            cure = "free the GPU, or name --device cpu"
        raise ConfigError(f"no baseline: {error}; {cure}") from None
    except Refused as error:
        local = backend is None or backend.name == "local"
        raise ConfigError(
            f"no baseline: {error.why}; correct model_name_or_path in {config.path}" if local else str(error)
        ) from None
    finally:
        if backend is not None:
            backend.close()
    notes = [*about(config, facts), *notes]
    seconds = sum(row["seconds"] for row in rows)
    view.block(
        text("baseline.measure.title", name=base.name, backend=backend.name, seconds=duration(seconds)), rows, {}, notes
    )
    counted = scores({row["probe"]: verdict_of(row) for row in rows})
    errors = counted.pop("errors")
    return {
        "kind": KIND,
        "time": int(time.time()),
        "config": config.path.name,
        "model": _fingerprint(base),
        "suite": {"name": suite.name, "sha256": suite.sha256, "file": str(suite.path)},
        "rendering": rendering,
        "sampling": {"settings": dict(backend.settings), "max_new_tokens": suite.max_new_tokens},
        "backend": {"name": backend.name, "where": backend.where, "why": english(backend.why)},
        "scores": counted,
        "errors": errors,
        "can_judge": judgeable(suite),
        "seconds": round(seconds, 3),
        "versions": {"llamafactory-obs": __version__, **_versions()},
        "notes": notes,
        "probes": rows,
    }


def _backend(base: BaseModel, facts: RunFacts, options: Options, endpoint: Endpoint, view: View) -> Backend:
    named = bool(endpoint.named_by)
    choice = choose(options.backend, endpoint.url, named, base.source, options.device, facts.quantized, False)
    backend = choice.backend
    if backend.name == "vllm":
        same, why, by_files = serves(backend, base)
        if not same:
            backend.close()
            if named or options.backend == "vllm":
                cure = f"serve {base.name}"
                cure += "" if by_files else f"; if it is the same model, with --served-model-name {base.name}"
                raise ConfigError(f"{backend.endpoint}: {why}; {cure}, or --backend local")
            view.say(text("baseline.measure.not_asked", endpoint=backend.endpoint, why=why), "warn")
            backend = make_local(base.source, options.device, why, facts.quantized)
        else:
            view.say(why, "dim")
    view.say(text("baseline.measure.backend", where=backend.where, why=backend.why), "dim")
    return backend


def _ask_all(backend: Backend, renderer: Renderer, suite: Suite, view: View) -> tuple[list[dict], list[str]]:
    rows, about_all = [], circumstances(backend, renderer)
    with backend.open(None) as model:
        for probe in suite.probes:

            def progress(turn: int, tokens: int, name: str = probe.name) -> None:
                view.progress(text("baseline.measure.base"), name, turn, tokens)

            rows.append({**ask(model, renderer, suite, probe, None, about_all, progress), "time": time.time()})
        return rows, list(model.notes)


def about(config: RunConfig, facts: RunFacts) -> list[str]:
    """What is worth knowing about the model that is scored."""
    notes = []
    adapter = config.given.get("adapter_name_or_path")
    if adapter:
        notes.append(f"the base model is scored, without the adapter {adapter} that the config starts from")
    if facts.quantized:
        notes.append("training quantises the base model, here it is not: scores may differ slightly")
    if facts.template is None:
        notes.append("the config names no template: prompts are rendered by the model's own chat template")
    return notes


def _fingerprint(base: BaseModel) -> dict:
    try:
        return fingerprint(base)
    except OSError as error:
        raise ConfigError(f"no baseline: a file of {base.name} cannot be read: {error.strerror}") from None


def _versions() -> dict:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
