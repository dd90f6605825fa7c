"""Rows of `probes.jsonl`: one probe on one checkpoint, and what they say about each other."""

from dataclasses import dataclass
from pathlib import Path

from ..record.reader import read_rows
from ..record.schema import BASE, FOLDER, PROBES
from ..suite.model import Probe, Suite
from .copies import Taken
from .judge import Verdict
from .signals import repetition
from .turns import Turn
from .views import disagreements


@dataclass(frozen=True)
class Conditions:
    """What must be equal for two outputs to be comparable.

    Attributes:
        suite: the suite's SHA-256.
        rendering: `Rendering.key`.
    """

    suite: str
    rendering: str

    def hold(self, row: dict) -> bool:
        """Was this row made under them?"""
        return row.get("suite") == self.suite and (row.get("rendering") or {}).get("key") == self.rendering


def make_row(
    suite: Suite,
    probe: Probe,
    taken: Taken | None,
    turns: list[Turn],
    timings: list[dict],
    verdict: Verdict,
    about: dict,
) -> dict:
    """One row.

    Args:
        taken: the checkpoint, None for the base model.
        about: `backend`, `rendering` and `notes`.
    """
    return {
        "step": taken.step if taken else 0,
        "checkpoint": taken.name if taken else BASE,
        "content": taken.content if taken else "",
        "probe": probe.name,
        "prompt": probe.prompt,
        "passed": verdict.passed,
        "errors": list(verdict.errors),
        "details": list(verdict.details),
        "rung": verdict.rung,
        "layers": verdict.layers,
        "output": "\n".join(turn.raw for turn in turns),
        "turns": [
            _turn(turn, timing, about["rendering"]["tool_format"]) for turn, timing in zip(turns, timings, strict=True)
        ],
        "seconds": round(sum(timing["seconds"] for timing in timings), 3),
        "suite": suite.sha256,
        "suite_name": suite.name,
        **about,
    }


def _turn(turn: Turn, timing: dict, tool_format: str) -> dict:
    return {
        "raw": turn.raw,
        "finish": turn.finish,
        "repetition": round(repetition(turn.body), 3),
        "calls": [{"name": call.name, "arguments": call.arguments} for call in turn.calls],
        "broken": [{"error": a.error, "detail": a.detail, "text": a.text} for a in turn.attempts if a.error],
        "replies": [{"text": reply.text, "error": reply.error} for reply in turn.replies],
        "other_parsers": disagreements(turn.attempts, turn.body, tool_format),
        **timing,
    }


class Results:
    """The result rows of a run that were made under the same conditions, as they were when it was read.

    Args:
        output_dir: of the run.
        conditions: rows made under others are left out.

    Attributes:
        columns: (step, checkpoint) -> probe name -> the newest row; the base model first, then by step.
    """

    def __init__(self, output_dir: Path, conditions: Conditions):
        rows = [row for row in read_rows(output_dir / FOLDER / PROBES)[0] if _whole(row) and conditions.hold(row)]
        columns: dict[tuple[int, str], dict[str, dict]] = {}
        for row in rows:
            columns.setdefault((row["step"], row["checkpoint"]), {})[row["probe"]] = row
        self.columns = dict(sorted(columns.items(), key=lambda item: (item[0][1] != BASE, item[0])))
        self._rows = rows

    def of(self, name: str, step: int, content: str, since: float = 0.0) -> dict[str, dict]:
        """Probe name -> the newest row of one content of one checkpoint, written at `since` (Unix seconds) or later."""
        wanted = (name, step, content)
        mine = (row for row in self._rows if (row["checkpoint"], row["step"], row["content"]) == wanted)
        return {row["probe"]: row for row in mine if row["time"] >= since}

    def before(self, step: int, probe: str) -> dict | None:
        """The probe's row of the last checkpoint before a step; None where there is none."""
        earlier = [
            rows[probe] for (at, name), rows in self.columns.items() if name != BASE and at < step and probe in rows
        ]
        return earlier[-1] if earlier else None

    def base(self, probe: str) -> dict | None:
        """The probe's row of the base model."""
        return self.columns.get((0, BASE), {}).get(probe)


def _whole(row: dict) -> bool:
    return all(name in row for name in ("step", "time", "checkpoint", "content", "probe", "passed", "errors", "output"))


def verdict_of(row: dict) -> Verdict:
    """The verdict that a row was made from."""
    return Verdict(row["passed"], tuple(row["errors"]), tuple(row["details"]), row["layers"], row["rung"])


def change(row: dict, earlier: dict | None) -> dict | None:
    """`{"checkpoint", "change": "fixed" | "broke" | "same", "new_errors", "same_text"}` against an earlier row."""
    if earlier is None:
        return None
    kinds = {(False, True): "fixed", (True, False): "broke"}
    return {
        "checkpoint": earlier["checkpoint"],
        "change": kinds.get((earlier["passed"], row["passed"]), "same"),
        "new_errors": [error for error in row["errors"] if error not in earlier["errors"]],
        "same_text": earlier["output"] == row["output"],
    }
