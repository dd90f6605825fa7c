"""Rows of `probes.jsonl`, as whoever reads a record needs them."""

from collections.abc import Iterable, Mapping

#: step and name of a checkpoint
Column = tuple[int, str]


def is_whole(row: dict) -> bool:
    """Has it what a cell of the matrix needs: step, checkpoint, probe, and whether it passed?"""
    return (
        type(row.get("step")) is int
        and isinstance(row.get("checkpoint"), str)
        and isinstance(row.get("probe"), str)
        and isinstance(row.get("passed"), bool)
    )


def by_suite(rows: Iterable[dict]) -> dict[str, dict[Column, dict[str, dict]]]:
    """Suite -> checkpoint -> probe -> its newest row; the suite that was asked last stands last."""
    suites: dict[str, dict[Column, dict[str, dict]]] = {}
    for row in filter(is_whole, rows):
        suite = str(row.get("suite"))
        columns = suites[suite] = suites.pop(suite, {})
        columns.setdefault((row["step"], row["checkpoint"]), {})[row["probe"]] = row
    return suites


def shown_suite(suites: Mapping[str, Mapping]) -> str:
    """The suite whose matrix is shown: asked at the most checkpoints, the newest of equals.

    A golden set that was asked once, at the end, does not take the place of the probes that went along.

    Args:
        suites: suite -> its checkpoints, the newest suite last; not empty.
    """
    return max(reversed(suites), key=lambda suite: len(suites[suite]))
