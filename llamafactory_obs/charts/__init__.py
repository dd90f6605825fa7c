"""Charts, heat maps, matrices and pages as HTML from plain numbers: no network, no framework, no torch."""

from .area import stacked_area
from .decimate import BUCKETS, decimate, ema
from .event_list import event_list
from .heat import cell_width, heat_map
from .line import Limit, Wanted, line_chart
from .matrix import Cell, check_matrix
from .page import MARK, check_page, page, write_page
from .plot import Mark, Span
from .series import Series, part_bounds
from .text import escape, number, prose

__all__ = [
    "BUCKETS",
    "MARK",
    "Cell",
    "Limit",
    "Mark",
    "Series",
    "Span",
    "Wanted",
    "cell_width",
    "check_matrix",
    "check_page",
    "decimate",
    "ema",
    "escape",
    "event_list",
    "heat_map",
    "line_chart",
    "number",
    "page",
    "part_bounds",
    "prose",
    "stacked_area",
    "write_page",
]
