"""The layers for people, on one screen of 80 columns."""

import textwrap
from typing import TextIO

from .layers import Layer
from .report import Report

_COLUMNS, _BAR = 80, 16
_TITLES = {"loader": "data loader"}
_SHORT = {"callbacks": "ours", "evaluation": "eval"}


def show(report: Report, out: TextIO) -> None:
    """Print it, without colour: the first line is the speed, the last before the limits what to change first."""
    unicode = (out.encoding or "").lower().startswith("utf")
    lines = _failed(report) if not report.layers else [*_head(report), *_table(report, "█" if unicode else "#")]
    if report.layers:
        lines += ["", *_facts(report), "", *_wrapped("first   ", report.first)]
    if report.limits:
        lines.append("")
    for limit in report.limits:
        lines += _wrapped("not in it: ", limit)
    print("\n".join(lines), file=out)


def _failed(report: Report) -> list[str]:
    words = [f"  {line}" for line in report.failed]
    return ["FAILED: the measuring run broke off; the log's last words:", *words]


def _head(report: Report) -> list[str]:
    step, rate = report.seconds_per_step, report.tokens_per_step / report.seconds_per_step
    return [f"{report.config}: {_time(step)} a step, {rate:,.0f} tokens/s on {report.device} (one process)", ""]


def _table(report: Report, block: str) -> list[str]:
    lines, so_far = [f"  {'layer':<12}{'a step':>10}{'share':>8}  {'':<{_BAR}}{'tokens/s':>11}"], 0.0
    for layer in report.layers:
        so_far += layer.seconds_per_step
        share, rate = report.share(layer), report.tokens_per_step / so_far if so_far else 0.0
        bar = block * round(_BAR * share)
        name = _TITLES.get(layer.name, layer.name)
        lines.append(f"  {name:<12}{_time(layer.seconds_per_step):>10}{share:>8.1%}  {bar:<{_BAR}}{rate:>11,.0f}")
    return lines


def _detail(layer: Layer) -> str:
    hidden = "" if layer.at_most is None else f"; not measurable here, under {_time(layer.at_most)} a step"
    return layer.detail + hidden


def _facts(report: Report) -> list[str]:
    whole, before = report.whole_run, report.preparation
    text = f"{whole['steps']:,} steps, {_hours(whole['hours'])}"
    if whole["price"] is not None:
        text += f", {whole['price']:,.2f} at {whole['price_per_hour']:g} an hour"
    text += f"; of it {_hours(whole['hours_before_step_1'])} before step 1"
    if before["rows"]:
        text += f" ({_hours(before['tokenize_seconds'] / 3600)} tokenising {before['rows']:,} rows)"
    lines = _wrapped("run     ", text)
    for layer in report.layers:
        if layer.name != "model":
            lines += _wrapped(f"{_SHORT.get(layer.name, layer.name):<8}", _detail(layer))
    lines += _wrapped("workers ", f"{report.advice.recommended}: {report.advice.why}")
    if report.padding is not None:
        lines += _wrapped("padding ", f"{report.padding:.1%} of the places for tokens hold none")
    if report.noise is not None:
        lines += _wrapped("noise   ", f"differences under {report.noise:.1%} of the model's time are not seen here")
    return lines


def _time(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs" if seconds > 0 else "0"


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1 else f"{hours * 3600:.0f} s"


def _wrapped(label: str, text: str) -> list[str]:
    """Text behind its label; a line that goes on is indented as far."""
    wrapper = textwrap.TextWrapper(_COLUMNS, label, " " * len(label), break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)
