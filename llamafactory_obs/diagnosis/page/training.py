"""Loss, gradient norm, learning rate, rewards and the share of tokens with a label."""

import numpy as np

from ...charts import Limit, Series, Wanted, line_chart
from ...texts import text
from ..wanted import mask_range
from .shared import Drawing, mean_of, with_mean

#: a mean is drawn over the raw values from this many on
_MEAN_FROM = 20
#: a linear axis shows nothing but its peak where that is this many times the median
_LOG_FROM = 30.0
#: further charts of preference and RL runs: name, words of which a key must hold one, words it must not hold
_GROUPS = (
    ("rewards", ("reward",), ("accurac", "std")),
    ("accuracy", ("accurac",), ()),
    ("kl", ("kl",), ()),
    ("entropy", ("entropy",), ()),
    ("length_of_answers", ("completion_length", "completions/mean_length", "response_length"), ()),
)
_OURS = ("train/", "eval/", "time/", "system/", "data/", "quality/", "probe", "ranks/")


def training_charts(drawing: Drawing) -> list[str]:
    """The charts as HTML."""
    charts = [
        _loss(drawing),
        _gradient_norm(drawing),
        _update_ratio(drawing),
        _learning_rate(drawing),
        *_own_keys(drawing),
        _mask(drawing),
    ]
    return [chart for chart in charts if chart]


def _loss(drawing: Drawing) -> str:
    train, evaluation = drawing.series("train/loss", style="raw"), drawing.series("eval/loss", colour=1, style="dots")
    if train is None:
        drawing.missing.append(text("page.missing.loss"))
    if evaluation is None:
        drawing.missing.append(text("page.missing.eval"))
    notes = []
    series = [] if train is None else [train]
    if train is not None and len(train.steps) >= _MEAN_FROM:
        mean, span = mean_of(train, text("page.ema"))
        series.append(mean)
        notes.append(text("page.loss_rows", span=span))
    elif train is not None:
        series = [Series(train.name, train.steps, train.values, parts=train.parts)]
    if evaluation is not None:
        series.append(evaluation)
    if not series:
        return ""
    every = drawing.curves.logging_steps
    if every > 1:
        notes.append(text("page.mean_of_steps", steps=every))
    values = np.concatenate([one.values for one in series if one.scaled])
    log = _needs_log(values)
    if log and (values <= 0).any():
        notes.append(text("page.zero_below"))
    title, marks = text("page.title.loss"), drawing.marks()
    return line_chart("loss", title, series, drawing.span, unit="nats", log=log, marks=marks, notes=notes, height=280)


def _needs_log(values: np.ndarray) -> bool:
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(positive.size) and float(positive.max()) > _LOG_FROM * float(np.median(positive))


def _gradient_norm(drawing: Drawing) -> str:
    norm = drawing.series("train/grad_norm", colour=0, style="line")
    if norm is None:
        drawing.missing.append(text("page.missing.grad_norm"))
        return ""
    limit = drawing.setting("max_grad_norm")
    limits = [Limit("max_grad_norm", float(limit))] if isinstance(limit, (int, float)) and limit > 0 else []
    series, notes = with_mean(norm)
    title = text("page.title.grad_norm")
    return line_chart(
        "grad-norm", title, series, drawing.span, log=True, limits=limits, marks=drawing.marks(), notes=notes
    )


def _update_ratio(drawing: Drawing) -> str:
    ratio = drawing.series("train/update_ratio", colour=2)
    if ratio is None:
        return ""
    title = text("page.title.update_ratio")
    return line_chart("update-ratio", title, [ratio], drawing.span, log=True, marks=drawing.marks(), height=140)


def _learning_rate(drawing: Drawing) -> str:
    rate = drawing.series("train/lr", colour=3)
    if rate is None:
        drawing.missing.append(text("page.missing.lr"))
        return ""
    return line_chart("lr", text("page.title.lr"), [rate], drawing.span, zero=True, marks=drawing.marks(), height=140)


def _own_keys(drawing: Drawing) -> list[str]:
    """Rewards, KL and the like, under the names that the trainer gave them."""
    if drawing.curves.kind not in ("preference", "rl"):
        return []
    names = [name for name in drawing.curves.columns if not name.startswith(_OURS)]
    charts = []
    for group, words, without in _GROUPS:
        chosen = [n for n in names if any(w in n.lower() for w in words) and not any(w in n.lower() for w in without)]
        series = [drawing.series(name, colour=i % 8) for i, name in enumerate(chosen[:5])]
        series = [one for one in series if one is not None]
        if series:
            id_, title = group.replace("_", "-"), text(f"page.title.{group}")
            charts.append(line_chart(id_, title, series, drawing.span, marks=drawing.marks(), height=180))
    return charts


def _mask(drawing: Drawing) -> str:
    share = drawing.series("data/supervised_ratio", text("page.line.supervised"))
    if share is None:
        drawing.missing.append(text("page.missing.mask"))
        return ""
    series, notes = with_mean(share)
    series += [
        drawing.series("data/padding_ratio", text("page.line.padding"), colour=7, style="dashed"),
        drawing.series("data/truncated_ratio", text("page.line.truncated"), colour=1, style="dashed"),
    ]
    low_high = mask_range(drawing.curves.run)
    return line_chart(
        "mask",
        text("page.title.mask"),
        [one for one in series if one is not None],
        drawing.span,
        zero=True,
        wanted=Wanted(text("page.wanted"), *low_high) if low_high else None,
        marks=drawing.marks(),
        notes=notes,
    )
