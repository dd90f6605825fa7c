"""The recorder's own first and last event of a training."""

from ..continuity.said import Lack


def tell_begin(run, state, lacks: list[Lack] | None) -> None:
    """Training starts, or is resumed; then with what the checkpoint did not bring back."""
    names = ", ".join(callback.yaml_name for callback in run.callbacks if callback.yaml_name not in run.ALWAYS)
    text = f"{names or 'no callbacks of ours'}; record: {run.folder}"
    evidence = {"callbacks": names, "max_steps": state.max_steps, "rows_replayed": len(run.previous.rows)}
    evidence["record"] = run.folder
    if not state.global_step:
        run.event("start", "recorder", "training starts", text, evidence=evidence)
        return
    if lacks is not None:
        evidence["not_restored"] = [one.as_dict() for one in lacks]
    if lacks:
        parts = "; ".join(f"{one.part} ({one.words('en')})" for one in lacks)
        text = f"not restored: {parts}. {text}"
    level = "warn" if lacks else "info"
    run.event("resume", "recorder", "training resumes", text, level=level, evidence=evidence)


def tell_end(run, state) -> None:
    """Training has ended; what goes on, and what each callback has cost."""
    evidence: dict = {"callbacks_s": {name: round(seconds, 4) for name, seconds in run.costs.items()}}
    evidence["record"] = run.folder
    text = f"{state.global_step} steps; record: {run.folder}"
    open_alerts = run.journal.still_open()
    if open_alerts:
        evidence["open_alerts"] = open_alerts
        text += "; still open: " + ", ".join(f"{one['id']} since step {one['since']}" for one in open_alerts)
    run.event("end", "recorder", "training ended", text, evidence=evidence)
