"""The layers for people, on one screen of 80 columns."""

from typing import TextIO

from ...texts import text
from ...texts.wrap import labelled, padded, right
from .layers import Layer
from .report import Report

_BAR = 16


def show(report: Report, out: TextIO) -> None:
    """Print it, without colour: the first line is the speed, the last before the limits what to change first."""
    unicode = (out.encoding or "").lower().startswith("utf")
    lines = _failed(report) if not report.layers else [*_head(report), *_table(report, "█" if unicode else "#")]
    if report.layers:
        lines += ["", *_facts(report), "", *labelled(_label("first"), report.first)]
    if report.limits:
        lines.append("")
    for limit in report.limits:
        lines += labelled(text("speed.not_in_it"), limit)
    print("\n".join(lines), file=out)


def _failed(report: Report) -> list[str]:
    words = [f"  {line}" for line in report.failed]
    return [text("speed.failed"), *words]


def _head(report: Report) -> list[str]:
    step, rate = report.seconds_per_step, report.tokens_per_step / report.seconds_per_step
    return [text("speed.head", config=report.config, step=_time(step), rate=rate, device=report.device), ""]


def _table(report: Report, block: str) -> list[str]:
    heads = [text(f"speed.column.{name}") for name in ("layer", "step", "share")]
    lines, so_far = [_row(*heads, "", "tokens/s")], 0.0
    for layer in report.layers:
        so_far += layer.seconds_per_step
        share, rate = report.share(layer), report.tokens_per_step / so_far if so_far else 0.0
        name, bar = text(f"speed.layer.{layer.name}"), block * round(_BAR * share)
        lines.append(_row(name, _time(layer.seconds_per_step), f"{share:.1%}", bar, f"{rate:,.0f}"))
    return lines


def _row(name: str, step: str, share: str, bar: str, rate: str) -> str:
    return f"  {padded(name, 12)}{right(step, 10)}{right(share, 8)}  {bar:<{_BAR}}{rate:>11}"


def _detail(layer: Layer) -> str:
    if layer.at_most is None:
        return layer.detail
    return layer.detail + text("speed.hidden", time=_time(layer.at_most))


def _facts(report: Report) -> list[str]:
    whole, before = report.whole_run, report.preparation
    said = text("speed.run", steps=whole["steps"], time=_hours(whole["hours"]))
    if whole["price"] is not None:
        said += text("speed.price", price=whole["price"], per_hour=whole["price_per_hour"])
    said += text("speed.before", time=_hours(whole["hours_before_step_1"]))
    if before["rows"]:
        said += text("speed.tokenising", time=_hours(before["tokenize_seconds"] / 3600), rows=before["rows"])
    lines = labelled(_label("run"), said)
    for layer in report.layers:
        if layer.name != "model":
            lines += labelled(_label(layer.name), _detail(layer))
    workers = text("speed.workers", count=report.advice.recommended, why=report.advice.why)
    lines += labelled(_label("workers"), workers)
    if report.padding is not None:
        lines += labelled(_label("padding"), text("speed.padding", share=report.padding))
    if report.noise is not None:
        lines += labelled(_label("noise"), text("speed.noise", share=report.noise))
    return lines


def _label(name: str) -> str:
    return padded(text(f"speed.label.{name}"), 8)


def _time(seconds: float) -> str:
    if seconds >= 100:
        return text("speed.time.s", n=seconds)
    if seconds >= 1:
        return text("speed.time.short_s", n=seconds)
    if seconds >= 1e-3:
        return text("speed.time.ms", n=seconds * 1e3)
    return text("speed.time.us", n=seconds * 1e6) if seconds > 0 else "0"


def _hours(hours: float) -> str:
    if hours >= 1:
        return text("speed.time.h", n=hours)
    return text("speed.time.min", n=hours * 60) if hours * 60 >= 1 else text("speed.time.s", n=hours * 3600)
