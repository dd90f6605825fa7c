"""The frame that every chart stands in: head, legend, axes, marks, cursor.

Lines are SVG stretched to the width there is; text is HTML beside it, so that it is as readable on a phone as on a
desk. Positions are per cent. The page's script adds the cursor and the zoom; without it the chart is whole.
"""

import re
from dataclasses import dataclass, field

import numpy as np

from ..texts import text
from .axis import Axis
from .text import data_block, escape, number

#: units of the SVG: whole numbers in paths, fine enough to be zoomed into
WIDTH, HEIGHT = 10000, 4000


@dataclass(frozen=True)
class Span:
    """The steps of all charts of a page: from `low` to `high`, each step one step wide."""

    low: int
    high: int

    @property
    def width(self) -> int:
        """Steps in it."""
        return self.high - self.low + 1

    def at(self, steps) -> np.ndarray:
        """Steps as positions, 0 to 1: a step stands in the middle of its place."""
        return (np.asarray(steps, dtype=float) - self.low + 0.5) / self.width

    def percent(self, step: float) -> str:
        """A step as a CSS length."""
        return f"{float(self.at(step)) * 100:.3f}%".replace(".000%", "%")


@dataclass(frozen=True)
class Mark:
    """Something that happened at a step, or from one step to another, marked in a chart.

    Attributes:
        step, until: first and last step; `until` None for one step.
        label: the few characters on the flag; "" draws a line without a flag.
        title: what it is, for a pointer that rests on it and for a screen reader.
        kind: "error", "warn", "info" or "resume"; sets the colour.
        target: id of the element that tells more; "" where there is none.
    """

    step: int
    until: int | None = None
    label: str = ""
    title: str = ""
    kind: str = "info"
    target: str = ""


@dataclass(frozen=True)
class Plot:
    """One chart's frame.

    Attributes:
        name: id of the figure, unique on the page.
        title: of the chart.
        summary: what the chart shows, in words and numbers, for those who do not see it.
        span: steps across.
        axis: values upwards; None where the chart has labels of its own (`rows`).
        unit: of the axis.
        notes: short remarks beside the title ("log scale").
        height: of the plot in CSS pixels.
        marks: see `Mark`.
        rows: (position 0 to 1 from the top, text): labels instead of an axis.
    """

    name: str
    title: str
    summary: str
    span: Span
    axis: Axis | None = None
    unit: str = ""
    notes: list[str] = field(default_factory=list)
    height: int = 200
    marks: list[Mark] = field(default_factory=list)
    rows: list[tuple[float, str]] = field(default_factory=list)

    def draw(self, drawing: str, legend: str, data: dict, edge: str = "") -> str:
        """The figure.

        Args:
            drawing: SVG elements in units of `WIDTH` x `HEIGHT`, the origin top left.
            legend: list items.
            data: what the script needs to show values, see page.js.
            edge: further SVG elements that keep their height when the values are zoomed into.
        """
        name = identifier(self.name)
        axis = self.axis
        spec = {"x": [self.span.low, self.span.high], **data}
        if axis is not None:
            spec["y"] = [axis.low, axis.high, int(axis.log)]
        notes = "".join(f'<span class="note">{escape(note)}</span>' for note in self.notes)
        unit = f" <small>{escape(self.unit)}</small>" if self.unit else ""
        wide = "" if axis is not None else " wide"
        return (
            f'<figure class="chart{wide}" id="{name}" tabindex="0" role="group" '
            f'aria-label="{escape(text("charts.figure", title=self.title))}">'
            f"<figcaption><h3>{escape(self.title)}{unit}</h3>{notes}</figcaption>"
            f'<ul class="legend">{legend}</ul>'
            f'<div class="plot"><div class="y" aria-hidden="true">{self._labels()}</div>'
            f'<div class="area" style="height:{self.height}px">'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(self.summary)}">'
            f'<g class="grid">{self._grid()}</g><g class="zoom-x">{self._bands()}</g><g class="zoom">{drawing}</g>'
            f'<g class="zoom-x">{edge}</g></svg>'
            f"{self._flags()}</div>"
            f'<div class="step">{text("charts.step")}</div>'
            f'<div class="x" aria-hidden="true">{self._step_labels()}</div></div>'
            f"{data_block(spec)}</figure>"
        )

    def _grid(self) -> str:
        if self.axis is None:
            return ""
        ticks = [round(HEIGHT * (1 - float(self.axis.at(tick)))) for tick in self.axis.ticks()]
        return "".join(f'<path d="M0 {y}h{WIDTH}"/>' for y in ticks)

    def _labels(self) -> str:
        if self.axis is None:
            return "".join(
                f'<span style="top:{place * 100:.2f}%" title="{escape(name)}"><bdi>{escape(name)}</bdi></span>'
                for place, name in self.rows
            )
        ticks = [(1 - float(self.axis.at(tick)), number(tick)) for tick in self.axis.ticks()]
        return "".join(f'<span style="top:{place * 100:.2f}%">{value}</span>' for place, value in ticks)

    def _step_labels(self) -> str:
        ticks = sorted({round(tick) for tick in Axis(self.span.low - 0.5, self.span.high + 0.5).ticks(6)})
        inside = [tick for tick in ticks if self.span.low <= tick <= self.span.high]
        return "".join(
            f'<span style="left:{self.span.percent(tick)}"{_ends(float(self.span.at(tick)))}>{number(tick)}</span>'
            for tick in inside
        )

    def _bands(self) -> str:
        out = []
        for mark in self.marks:
            left = round(WIDTH * float(self.span.at(mark.step)))
            if mark.until is not None and mark.until > mark.step:
                right = round(WIDTH * float(self.span.at(mark.until)))
                out.append(f'<path class="band {identifier(mark.kind)}" d="M{left} 0H{right}V{HEIGHT}H{left}z"/>')
            out.append(f'<path class="at {identifier(mark.kind)}" d="M{left} 0v{HEIGHT}"/>')
        return "".join(out)

    def _flags(self) -> str:
        out, taken = [], []
        for mark in sorted(self.marks, key=lambda one: one.step):
            if not mark.label:
                continue
            left, above = float(self.span.at(mark.step)), mark.kind != "resume"
            line = sum(1 for place, level in taken if left - place < 0.04 and level == above)
            taken.append((left, above))
            style = f"--at:{self.span.percent(mark.step)};{'top' if above else 'bottom'}:{1.35 * (line % 6):.2f}em"
            place = f'class="flag {identifier(mark.kind)}" data-step="{mark.step}" style="{style}"'
            words = f'title="{escape(mark.title)}" aria-label="{escape(mark.title or mark.label)}"'
            if mark.target:
                out.append(f'<a {place} {words} href="#{identifier(mark.target)}">{escape(mark.label)}</a>')
            else:
                out.append(f'<span {place} {words} role="note">{escape(mark.label)}</span>')
        return "".join(out)


def _ends(place: float) -> str:
    """A label near the right edge ends there."""
    return ' class="ends"' if place > 0.96 else ""


def identifier(name: str) -> str:
    """A text as an id or class: letters, digits, hyphens and underscores only."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def legend_item(swatch: str, name: str, value: str, index: int | None, what: str | None = None) -> str:
    """One entry of a legend; the script writes the value at the cursor into it.

    Args:
        swatch: class of the sample of colour.
        value: shown while there is no cursor.
        index: of the series in the data, None for an entry without a value at the cursor.
        what: what `value` is; None for the last one.
    """
    held = "" if index is None else f' data-series="{index}"'
    shown = (
        f" <b{held}>{escape(value)}</b><em>{escape(text('charts.last') if what is None else what)}</em>"
        if value
        else ""
    )
    return f'<li><i class="{escape(swatch)}"></i>{escape(name)}{shown}</li>'
