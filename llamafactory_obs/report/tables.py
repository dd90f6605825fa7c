"""The tables below the sheet: starts, checkpoints, gates, probes, alerts, findings. Plain cells for any form."""

from dataclasses import dataclass

from ..diagnosis.result import Diagnosis
from ..summary import RaisedAlert, RunSummary, SavedCheckpoint
from ..texts.findings import title, told
from .values import DASH, duration, ended, first_line, moment, named, num, size, t

#: rows of one table in Markdown and in the terminal; the page has as many as it is given
MOST = 40
PASSED, FAILED = "✓", "✗"


@dataclass(frozen=True)
class Table:
    """Rows of texts under heads; `key` names it."""

    key: str
    title: str
    heads: list[str]
    rows: list[list[str]]


def tables(summary: RunSummary, diagnosis: Diagnosis | None, utc: bool = False) -> list[Table]:
    """Those that have a row."""
    made = (
        _findings(diagnosis),
        _starts(summary, utc) if len(summary.sessions) > 1 else None,
        _checkpoints(summary),
        _gates(summary),
        _probes(summary),
        _alerts(summary),
    )
    return [one for one in made if one is not None and one.rows]


def _heads(*names: str) -> list[str]:
    return [t(f"table.{name}") for name in names]


def _findings(diagnosis: Diagnosis | None) -> Table | None:
    if diagnosis is None:
        return None
    rows = [
        [title(one.name), str(one.step), told(one.name, one.step, one.text, one.evidence)] for one in diagnosis.findings
    ]
    return Table("findings", t("table.findings"), _heads("finding", "step", "told"), rows)


def _starts(summary: RunSummary, utc: bool) -> Table:
    rows = []
    for one in summary.sessions:
        steps = DASH if one.first_step is None else f"{one.first_step}-{one.last_step}"
        rows.append([str(one.segment), moment(one.began, utc), steps, duration(one.train_s), ended(one)])
    return Table("starts", t("table.starts"), _heads("start", "from", "steps", "trained", "ended"), rows)


def _checkpoints(summary: RunSummary) -> Table:
    rows = [
        [
            one.name,
            DASH if one.eval_loss is None else num(one.eval_loss),
            _good_for(one),
            size(one.bytes),
            duration(one.save_s),
            t("yes") if one.on_disk else t("gone", why=one.deleted) if one.deleted else t("no"),
        ]
        for one in summary.checkpoints
    ]
    heads = _heads("checkpoint", "eval_loss", "verdict", "size", "saved", "there")
    return Table("checkpoints", t("table.checkpoints"), heads, rows)


def _good_for(one: SavedCheckpoint) -> str:
    verdict = named("verdict", one.verdict) if one.verdict else DASH
    return t("flaw", verdict=verdict, flaw=one.flaw) if one.flaw else verdict


def _gates(summary: RunSummary) -> Table:
    rows = [
        [one.name, named("status", one.status), ", ".join(one.failed) or DASH, one.fix or DASH] for one in summary.gates
    ]
    return Table("gates", t("table.gates"), _heads("gate", "status", "failed", "fix"), rows)


def _probes(summary: RunSummary) -> Table | None:
    matrix = summary.probes
    if matrix is None:
        return None
    keep = max(0, len(matrix.columns) - 8)
    columns = list(range(len(matrix.columns)))
    columns = columns[:1] + columns[keep + 1 :] if keep else columns
    heads = [t("table.probe"), *(matrix.columns[place].removeprefix("checkpoint-") for place in columns)]
    rows = [[probe, *(_cell(matrix.passed[probe][place]) for place in columns)] for probe in matrix.probes]
    totals = ["/".join(map(str, matrix.totals[place])) for place in columns]
    return Table("probes", t("table.probes"), heads, [*rows, [t("table.passed"), *totals]])


def _cell(passed: bool | None) -> str:
    return DASH if passed is None else PASSED if passed else FAILED


def _alerts(summary: RunSummary) -> Table:
    rows = [
        [title(one.title), named("level", one.level), str(one.since), str(one.count), _open(one.open), _said(one)]
        for one in summary.alerts
        if one.level != "info"
    ]
    return Table("alerts", t("table.alerts"), _heads("alert", "level", "since", "times", "open", "told"), rows)


def _said(alert: RaisedAlert) -> str:
    return first_line(told(alert.title, alert.since, alert.text, alert.evidence), 200)


def _open(value: bool | None) -> str:
    return DASH if value is None else t("yes") if value else t("no")
