"""Figures of rows to numbers of a split and of each data set in it."""

import numpy as np

from .segments import COLUMNS, FIELDS, ROLES

_AT = {name: index for index, name in enumerate(COLUMNS)}
#: share of rows that the suggested cutoff keeps whole
KEEP = 0.99


def column(figures: np.ndarray, name: str) -> np.ndarray:
    """One figure of all rows: (rows,) int64."""
    return figures[:, _AT[name]]


def shares(figures: np.ndarray) -> np.ndarray:
    """Per row the share of its real tokens in the loss, 0..1; nan for a row that is dropped."""
    length = column(figures, "length")
    return np.where(length > 0, column(figures, "supervised") / np.maximum(length, 1), np.nan)


def numbers(split: str, dataset: str | None, figures: np.ndarray) -> dict:
    """What is said about a split (`dataset` None) or one data set in it.

    Returns:
        `rows` used, `dropped`, `tokens` (real ones, no padding), `supervised` of these in the loss, `share`,
        `expected_share` (what this config must give), `share_min|median|max` over rows, `by_role` (role -> tokens and
        those in the loss), `without_labels` rows with nothing to learn from (no label at all, or only empty answers),
        `rows_cut` by cutoff_len, `longest` row before the cutoff, `longest_used` after it, `cutoff_for_99` the
        cutoff_len that keeps 99 % of the rows whole, `kept_99`; and the sums of `segments.FIELDS`.
    """
    used = figures[column(figures, "dropped") == 0]
    sums = dict(zip(COLUMNS, used.sum(axis=0).tolist(), strict=True))
    tokens = sums["length"]
    per_row = shares(used)
    whole = column(used, "whole")
    all_empty = (column(used, "taught") > 0) & (column(used, "empty") == column(used, "taught"))
    nothing = (column(used, "learnable") == 0) | all_empty
    result = {
        "split": split,
        "dataset": dataset,
        "rows": len(used),
        "dropped": len(figures) - len(used),
        "tokens": tokens,
        "supervised": sums["supervised"],
        "share": sums["supervised"] / tokens if tokens else None,
        "expected_share": sums["due"] / tokens if tokens else None,
        "by_role": {role: {"tokens": sums[role], "in_loss": sums[f"{role}_in"]} for role in ROLES if sums[role]},
        "without_labels": int(nothing.sum()),
        "rows_cut": int((whole > column(used, "length")).sum()),
        "longest": int(whole.max(initial=0)),
        "longest_used": int(column(used, "length").max(initial=0)),
        "cutoff_for_99": int(np.quantile(whole, KEEP, method="inverted_cdf")) if len(used) else None,
        "spans_max": int(column(used, "spans").max(initial=0)),
    }
    for name, function in (("min", np.min), ("median", np.median), ("max", np.max)):
        result[f"share_{name}"] = float(function(per_row)) if len(used) and tokens else None
    return result | {name: sums[name] for name in FIELDS if name not in ("dropped", "length", "supervised")}
