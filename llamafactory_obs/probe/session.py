"""Probes one checkpoint after another: opens it, lets it talk, judges, records and shows."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from .. import texts
from ..record.reader import read_rows
from ..record.schema import EVENTS, FOLDER, PROBES
from ..record.writer import RecordWriter
from ..suite.model import Suite
from .ask import ask, circumstances
from .backends import Backend, Refused, Unavailable
from .backends.adapter_check import read_config
from .backends.choose import choose as choose_backend
from .backends.choose import make_local
from .backends.vllm import DEFAULT_ENDPOINT
from .copies import Taken
from .facts import RunFacts, read_facts
from .in_words import in_words
from .ledger import Hopeless, Later
from .render import Renderer
from .render.choose import Mismatch, compare
from .render.choose import choose as choose_renderer
from .render.tokenizer import fingerprint
from .results import BASE, Conditions, Results, change, verdict_of
from .scores import scores
from .show import View, duration


@dataclass(frozen=True)
class Options:
    """What the command line says about generating.

    Attributes:
        backend: "auto" | "vllm" | "local".
        endpoint: the vLLM server's, None for the default.
        model: the base model, None for the run's own.
        template: LlamaFactory's template or "chat", None for the run's own.
        tool_format: overrides the template's.
        device: of the local backend.
        baseline: probe the untuned base model too, once.
        again: ask again what was recorded before this session.
    """

    backend: str = "auto"
    endpoint: str | None = None
    model: str | None = None
    template: str | None = None
    tool_format: str | None = None
    device: str = "auto"
    baseline: bool = True
    again: bool = False


class Session:
    """The probing side of the watcher.

    Args:
        output_dir: of the run; results go to its `obs/`.
        suite: what is asked.
        options: see `Options`.
        view: what people see.
        out: told each result row once; None for nobody.
    """

    def __init__(
        self, output_dir: Path, suite: Suite, options: Options, view: View, out: Callable[[dict], None] | None
    ):
        self.suite, self.view = suite, view
        self._output_dir, self._options, self._out = output_dir, options, out
        self._emitted: set[tuple] = set()
        self._backend: Backend | None = None
        self._local: Backend | None = None
        self._fallback = False
        self._baseline_due = options.baseline
        self._rendered: dict[tuple, tuple[Renderer, list[Mismatch]]] = {}
        self._said: set[str] = set()
        self._began = time.time()

    @property
    def facts(self) -> RunFacts:
        """The run's facts as they are now; the record may appear after the probe has started."""
        return read_facts(self._output_dir)

    # ---- one checkpoint -----------------------------------------------------------------------------------------

    def recorded(self, taken: Taken) -> bool:
        """Are all results and the verdict of this content recorded already?"""
        renderer, _ = self._renderer(taken.path)
        done = self._results(renderer).of(taken.name, taken.step, taken.content)
        return all(probe.name in done for probe in self.suite.probes) and self._verdict_recorded(taken)

    def probe(self, taken: Taken) -> None:
        """Probe one checkpoint; what is recorded already is not asked again.

        Raises:
            Later: the backend is not there now.
            Hopeless: no backend can load it.
        """
        try:
            self._probe(taken)
        except Unavailable as error:
            raise Later(str(error)) from None
        except Refused as error:
            raise Hopeless(str(error)) from None

    def _probe(self, taken: Taken) -> None:
        renderer, mismatches = self._renderer(taken.path)
        backend = self._choose(taken)
        if self._baseline_due:
            self._baseline(backend, taken)
        try:
            rows, notes, _ = self._ask(backend, renderer, taken)
        except Refused as error:
            if not self._fallback:
                raise
            why = f"vLLM refuses {taken.name}: {error}"
            self.view.say(texts.text("probe.say.instead", why=why), "warn")
            self._local = self._local or make_local(self._base_model, self._options.device, why, self.facts.quantized)
            rows, notes, _ = self._ask(self._local, renderer, taken)
            notes.insert(0, why)
        for mismatch in mismatches:
            self._event_once(taken, "template_mismatch", mismatch.text, {"what": mismatch.what, **mismatch.evidence})
        self._conclude(taken, renderer, rows, notes)

    def _ask(
        self, backend: Backend, renderer: Renderer, taken: Taken | None
    ) -> tuple[dict[str, dict], list[str], bool]:
        """All result rows of one checkpoint by probe, the notes about it, and whether anything was asked now."""
        name, step, content = (taken.name, taken.step, taken.content) if taken else (BASE, 0, "")
        results = self._results(renderer)
        since = self._began if self._options.again else 0.0
        rows, notes = results.of(name, step, content, since), []
        missing = [probe for probe in self.suite.probes if probe.name not in rows]
        if not missing:
            return rows, notes, False
        about = circumstances(backend, renderer)
        with backend.open(taken) as model, self._writer() as writer:
            for probe in missing:
                row = ask(
                    model,
                    renderer,
                    self.suite,
                    probe,
                    taken,
                    about,
                    lambda t, n, p=probe.name: self.view.progress(name, p, t, n),
                )
                if taken is not None:
                    row["vs_previous"] = change(row, results.before(step, probe.name))
                    row["vs_base"] = change(row, results.base(probe.name))
                writer.append(PROBES, row)
                if writer.dropped:
                    raise Unavailable(f"{PROBES} cannot be written: is the disk full?")
                rows[probe.name] = row
                self.emit(row)
            notes += model.notes
        return {probe.name: rows[probe.name] for probe in self.suite.probes}, notes, True

    def _baseline(self, backend: Backend, taken: Taken) -> None:
        """The untuned base model, once: what the fine-tuning is measured against."""
        model = self._base_model or _adapters_base(taken.path)
        folder = Path(model) if model and Path(model).is_dir() else taken.path
        try:
            rows, notes, fresh = self._ask(backend, self._renderer(folder)[0], None)
        except Refused as error:
            self.view.say(texts.text("probe.say.no_baseline", error=error), "warn")
        else:
            if fresh:
                seconds = duration(sum(row["seconds"] for row in rows.values()))
                self.view.block(
                    texts.text("probe.title.base", backend=backend.name, seconds=seconds),
                    list(rows.values()),
                    {},
                    notes,
                )
        self._baseline_due = False

    def _conclude(self, taken: Taken, renderer: Renderer, rows: dict[str, dict], notes: list[str]) -> None:
        """The verdict on one checkpoint: shown, and an event of the run."""
        ordered = [rows[probe.name] for probe in self.suite.probes]
        results = self._results(renderer)
        earlier = {row["probe"]: before for row in ordered if (before := results.before(taken.step, row["probe"]))}
        seconds = sum(row["seconds"] for row in ordered)
        title = texts.text(
            "probe.title.checkpoint",
            checkpoint=taken.name,
            step=taken.step,
            backend=ordered[0]["backend"]["name"],
            seconds=duration(seconds),
        )
        self.view.block(title, ordered, earlier, notes)
        broke = [row["probe"] for row in ordered if _changed(row, "broke")]
        fixed = [row["probe"] for row in ordered if _changed(row, "fixed")]
        runs_on = [row["probe"] for row in ordered if _runs_on(row)]
        evidence = {
            "checkpoint": taken.name,
            "content": taken.content,
            "suite": self.suite.sha256,
            "suite_name": self.suite.name,
            "rendering": renderer.rendering.key,
            "backend": ordered[0]["backend"]["name"],
            "passed": {row["probe"]: row["passed"] for row in ordered},
            "errors": {row["probe"]: row["errors"] for row in ordered if row["errors"]},
            "broke": broke,
            "fixed": fixed,
            "runs_on": runs_on,
            "answers": sum(len(row["turns"]) for row in ordered),
            "answers_cut": sum(turn["finish"] == "length" for row in ordered for turn in row["turns"]),
            "scores": scores({row["probe"]: verdict_of(row) for row in ordered}),
            "notes": notes,
        }
        text = in_words(evidence, "en")
        self._event(taken, "verdict", text, "warn" if broke or runs_on else "info", evidence)

    def emit(self, row: dict) -> None:
        """Hand a result row on, unless it was handed on before."""
        key = tuple(row[name] for name in ("step", "checkpoint", "content", "probe"))
        if self._out is not None and key not in self._emitted:
            self._emitted.add(key)
            self._out(row)

    def rows(self) -> list[dict]:
        """All recorded result rows of this suite, whatever their rendering."""
        rows, _ = read_rows(self._output_dir / FOLDER / PROBES)
        return [row for row in rows if row.get("suite") == self.suite.sha256 and "content" in row]

    def columns(self) -> dict[tuple[int, str], dict[str, dict]]:
        """All results that are comparable with the newest one, see `Results.columns`; empty where there are none."""
        rows = self.rows()
        newest = rows[-1]["rendering"]["key"] if rows else ""
        return Results(self._output_dir, Conditions(self.suite.sha256, newest)).columns

    # ---- parts --------------------------------------------------------------------------------------------------

    @property
    def _base_model(self) -> str | None:
        return self._options.model or self.facts.model

    def _renderer(self, folder: Path) -> tuple[Renderer, list[Mismatch]]:
        """For a checkpoint's copy or the base model, made anew only where its files differ; and what does not agree."""
        facts = self.facts
        if self._options.model or facts.model is None:
            facts = replace(facts, model=self._options.model or _adapters_base(folder))
        key = (fingerprint(folder), repr(facts))
        if key not in self._rendered:
            renderer = choose_renderer(folder, facts, self._options.template, self._options.tool_format)
            self._rendered[key] = renderer, compare(renderer, folder, facts, self.suite)
            self._say_once(texts.text("probe.say.prompts", rendering=_rendering(renderer)))
        return self._rendered[key]

    def _choose(self, taken: Taken) -> Backend:
        if self._backend is None:
            options = self._options
            choice = choose_backend(
                options.backend,
                options.endpoint or DEFAULT_ENDPOINT,
                options.endpoint is not None,
                self._base_model or _adapters_base(taken.path),
                options.device,
                self.facts.quantized,
                taken.kind == "full",
            )
            self._backend, self._fallback = choice.backend, choice.fallback
            self.view.say(texts.text("probe.say.backend", where=choice.backend.where, why=choice.backend.why), "dim")
        return self._backend

    def _results(self, renderer: Renderer) -> Results:
        return Results(self._output_dir, Conditions(self.suite.sha256, renderer.rendering.key))

    @contextlib.contextmanager
    def _writer(self):
        writer = RecordWriter.joining(
            self._output_dir, lambda problem: self.view.say(problem or texts.text("probe.say.writing"), "warn")
        )
        try:
            yield writer
        finally:
            writer.close()

    def _event(self, taken: Taken, title: str, text: str, level: str, evidence: dict) -> None:
        row = {"step": taken.step, "kind": "probe", "level": level, "name": "probe", "title": title, "text": text}
        with self._writer() as writer:
            writer.append(EVENTS, row | {"evidence": evidence, "action": "none", "suggest": {}})
            if writer.dropped:
                raise Unavailable(f"{EVENTS} cannot be written: is the disk full?")

    def _event_once(self, taken: Taken, title: str, text: str, evidence: dict) -> None:
        self._say_once(f"! {text}", "warn")
        told = (event for event in self._events() if event.get("title") == title)
        if not any(event["evidence"] == evidence for event in told):
            self._event(taken, title, text, "warn", evidence)

    def _verdict_recorded(self, taken: Taken) -> bool:
        wanted = (taken.name, taken.content, self.suite.sha256)
        return any(
            event["step"] == taken.step
            and tuple(event["evidence"].get(key) for key in ("checkpoint", "content", "suite")) == wanted
            for event in self._events()
            if event.get("title") == "verdict"
        )

    def _events(self) -> list[dict]:
        events, _ = read_rows(self._output_dir / FOLDER / EVENTS)
        return [event for event in events if event.get("kind") == "probe" and isinstance(event.get("evidence"), dict)]

    def _say_once(self, text: str, style: str = "dim") -> None:
        if text not in self._said:
            self._said.add(text)
            self.view.say(text, style)

    def close(self) -> None:
        """Let go of the models."""
        for backend in (self._backend, self._local):
            if backend is not None:
                backend.close()


def _changed(row: dict, kind: str) -> bool:
    """Against the previous checkpoint, or against the base model where this is the first one."""
    against = row.get("vs_previous") or row.get("vs_base")
    return against is not None and against["change"] == kind


def _runs_on(row: dict) -> bool:
    """Did it begin to run on or to repeat itself? Also where the probe failed before, for another reason."""
    against = row.get("vs_previous") or row.get("vs_base")
    return against is not None and bool({"no_end_token", "repetition"} & set(against.get("new_errors", ())))


def _rendering(renderer: Renderer) -> str:
    rendering = renderer.rendering
    key = "probe.rendering.llamafactory" if rendering.by == "llamafactory" else "probe.rendering.checkpoint"
    return texts.text(key, name=rendering.name, why=rendering.why, tool_format=rendering.tool_format)


def _adapters_base(folder: Path) -> str | None:
    with contextlib.suppress(Refused):
        return read_config(folder).get("base_model_name_or_path")
    return None
