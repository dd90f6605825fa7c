"""Rows of `probes.jsonl`, as whoever reads a record needs them."""


def is_whole(row: dict) -> bool:
    """Has it what a cell of the matrix needs: step, checkpoint, probe, and whether it passed?"""
    return (
        type(row.get("step")) is int
        and isinstance(row.get("checkpoint"), str)
        and isinstance(row.get("probe"), str)
        and isinstance(row.get("passed"), bool)
    )
