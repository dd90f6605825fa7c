"""Gate 1: was the untuned base model scored, and does that still hold for this config?"""

import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path

from ... import texts
from ...errors import ConfigError
from ...probe.facts import RunFacts
from ...probe.judge import LAYERS
from ...suite import Suite
from ..result import ERROR, FAIL, PASS, WARN, Check, as_gate
from ..run_config import RunConfig, parsed, quiet
from . import compare, recorded
from .base_model import BaseModel, find_base_model, fingerprint
from .conditions import facts_of, judgeable, probes_suite, renderer_of, rendering_of, suite_of
from .hand_table import read_table
from .room import check_room
from .server import check_server, endpoint_of


@dataclass
class BaselineReport:
    """What the gate found.

    Attributes:
        checks: the evidence first, then the server.
        evidence: the file that was looked at.
        by_hand: it is a table filled in by hand.
        scores: layer -> share, 0..1; None where a layer has no number.
    """

    checks: list[Check]
    evidence: Path
    by_hand: bool = False
    scores: dict[str, float | None] = field(default_factory=dict)

    def gate(self) -> dict:
        """The gate of the contract."""
        return as_gate("baseline", self.checks)

    def as_dict(self) -> dict:
        """The gate with its evidence."""
        return {**self.gate(), "evidence": str(self.evidence), "by_hand": self.by_hand, "scores": self.scores}


def baseline_gate(
    config: RunConfig,
    *,
    suite: Path | None = None,
    evidence: Path | None = None,
    endpoint: str | None = None,
    needed_gib: float | None = None,
) -> BaselineReport:
    """Judge the recorded baseline of a run config, and the server that stays up beside the training.

    Args:
        config: see `run_config.read_run_config`.
        suite: what the model was to be asked; None for `obs: {suite: ...}` or the three fixed probes.
        evidence: a record, or a table filled in by hand; None for `obs: {baseline: ...}` or the file beside the config.
        endpoint: of the vLLM server; None for that of the `probe` callback or the default.
        needed_gib: what the training needs on one card, by estimate; None where nobody knows.

    Raises:
        ConfigError: the config or the suite cannot be read, or the model is not where the config says.
    """
    asked = suite_of(config, suite)
    where = endpoint_of(config, endpoint)
    with parsed(config) as arguments:
        base, facts = find_base_model(arguments), facts_of(config, arguments)
    path = evidence or config.settings.baseline or recorded.place(config)
    command = _command(config, suite, evidence, endpoint)
    if recorded.is_record(path):
        report = _recorded(config, path, base, facts, asked, command)
    else:
        report = _by_hand(path, command)
    server, answers = check_server(config, base, where)
    report.checks += [*server, check_room(config, base, needed_gib, answers and where.at_home)]
    return report


def _recorded(
    config: RunConfig, path: Path, base: BaseModel, facts: RunFacts, suite: Suite, command: str
) -> BaselineReport:
    try:
        record = recorded.read(path)
    except FileNotFoundError:
        text = texts.text("baseline.gate.none", path=path)
        return BaselineReport([Check("baseline_recorded", FAIL, None, str(path), text, command)], path)
    except recorded.Damaged as error:
        fix = command if not isinstance(error, recorded.Foreign) else texts.text("baseline.gate.name_file")
        return BaselineReport([Check("baseline_recorded", FAIL, None, str(path), f"{path}: {error}", fix)], path)
    backend = (record.get("backend") or {}).get("name", texts.text("baseline.gate.unknown_backend"))
    there = Check(
        "baseline_recorded",
        PASS,
        str(path),
        str(path),
        texts.text("baseline.gate.recorded", path=path, date=_when(record), backend=backend),
    )
    scores = record.get("scores") or {}
    shares = {layer: _share(scores.get(layer)) for layer in LAYERS}
    return BaselineReport([there, *judge_record(record, config, base, facts, suite, command)], path, scores=shares)


def judge_record(
    record: dict, config: RunConfig, base: BaseModel, facts: RunFacts, suite: Suite, command: str
) -> list[Check]:
    """The checks `model`, `suite`, `template`, `sampling` and `layers` of a record, see `recorded.read`.

    Args:
        base, facts, suite: what the config names now.
        command: the line that measures anew.
    """
    model, old_suite, rendering, sampling, backend, scores = (
        record.get(name) or {} for name in ("model", "suite", "rendering", "sampling", "backend", "scores")
    )
    same_suite = old_suite.get("sha256") == suite.sha256
    can_judge = judgeable(suite) if same_suite else record.get("can_judge") or {}
    return [
        _model(model, base, command),
        compare.check_suite(old_suite, record["probes"], suite, probes_suite(config), command),
        _template(rendering, base, facts, suite, same_suite, command),
        compare.check_sampling(sampling, backend, suite, command),
        compare.check_layers(scores, can_judge, str(old_suite.get("name")), f"{command} --again"),
    ]


def _model(old: dict, base: BaseModel, fix: str) -> Check:
    try:
        known = old.get("files")
        new = fingerprint(base, known if isinstance(known, list) else None)
    except OSError as error:
        text = texts.text("baseline.gate.unreadable", name=base.name, error=error.strerror)
        return Check("model", ERROR, old.get("name"), base.name, text, texts.text("baseline.gate.make_readable"))
    return compare.check_model(old, new, fix)


def _template(old: dict, base: BaseModel, facts: RunFacts, suite: Suite, same_suite: bool, fix: str) -> Check:
    try:
        with quiet():
            new = rendering_of(renderer_of(base, facts), facts, suite)
    except ConfigError as error:
        return Check(
            "template",
            ERROR,
            old.get("key"),
            None,
            texts.text("baseline.gate.not_judged", error=error),
            texts.text("baseline.gate.correct"),
        )
    return compare.check_template(old, new, same_suite, fix)


def _by_hand(path: Path, command: str) -> BaselineReport:
    def failed(text: str, fix: str) -> BaselineReport:
        return BaselineReport([Check("baseline_recorded", FAIL, None, str(path), text, fix)], path, True)

    try:
        table = read_table(path)
    except FileNotFoundError:
        return failed(
            texts.text("baseline.gate.no_table", path=path), texts.text("baseline.gate.fill_in", command=command)
        )
    except OSError as error:
        return failed(
            texts.text("baseline.gate.no_read", path=path, error=error.strerror), texts.text("baseline.gate.readable")
        )
    except ValueError as error:
        return failed(f"{path}: {error}", texts.text("baseline.gate.rows", layers=", ".join(LAYERS), command=command))
    shown = ", ".join(f"{layer} {table.scores[layer]['text']}" for layer in LAYERS if layer in table.scores)
    layers = Check("layers", PASS, 4, 4, shown)
    if table.problems:
        text = f"{path}: {'; '.join(table.problems)}"
        layers = Check("layers", FAIL, len(table.scores), 4, text, texts.text("baseline.gate.numbers"))
    text = texts.text("baseline.gate.by_hand")
    checks = [
        Check("baseline_recorded", PASS, str(path), str(path), texts.text("baseline.gate.table", path=path)),
        layers,
        Check("baseline_by_hand", WARN, str(path), "measured", text, command),
    ]
    scores = {layer: table.scores[layer]["share"] if layer in table.scores else None for layer in LAYERS}
    return BaselineReport(checks, path, True, scores)


def _command(config: RunConfig, suite: Path | None, evidence: Path | None, endpoint: str | None) -> str:
    """The line that measures what this gate wants."""
    words = ["llamafactory-obs", "baseline", *config.words]
    words += ["--suite", str(suite)] if suite else []
    words += ["--endpoint", endpoint] if endpoint else []
    words += ["--out", str(evidence)] if evidence and recorded.is_record(evidence) else []
    return shlex.join(words)


def _share(score: dict | None) -> float | None:
    return score["right"] / score["of"] if score and score["of"] else None


def _when(record: dict) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(record["time"]))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return texts.text("baseline.gate.no_date")
