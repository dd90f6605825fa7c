"""The probe's verdicts as they arrive in the record, whichever process writes them, and their numbers."""

from pathlib import Path

from ..record.schema import EVENTS, FOLDER, decode


class ProbeEvents:
    """Events of kind `probe` that are new in a record; those that are there already are not.

    Args:
        output_dir: the run's.
    """

    def __init__(self, output_dir: Path):
        self._file = output_dir / FOLDER / EVENTS
        self._position = self._file.stat().st_size if self._file.exists() else 0

    def new(self) -> list[dict]:
        """What has come since the last call, in order."""
        events = []
        try:
            with open(self._file, "rb") as file:
                file.seek(self._position)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # half a row: next time
                    self._position += len(line)
                    events.append(decode(line))
        except (OSError, ValueError):
            pass
        return [event for event in events if event.get("kind") == "probe"]


def passes(evidence: dict) -> dict[str, float]:
    """`probe/<name>`: 1 or 0 for each probe of a verdict."""
    return {f"probe/{name}": float(passed) for name, passed in evidence["passed"].items()}


def layer_scores(evidence: dict) -> dict[str, float]:
    """`probe_score/<layer>`: the share that is right; a layer that applies to no probe has no number."""
    layers = {layer: score for layer, score in evidence["scores"].items() if layer != "errors"}
    return {f"probe_score/{layer}": score["right"] / score["of"] for layer, score in layers.items() if score["of"]}


def error_counts(evidence: dict) -> dict[str, float]:
    """`probe_error/<class>`: how many probes have an error of this class; only classes that occur."""
    return {f"probe_error/{name}": float(count) for name, count in evidence["scores"].get("errors", {}).items()}
