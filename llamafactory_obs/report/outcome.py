"""What came of the run: losses, the next run's epochs, findings, alerts, gates, probes, checkpoints."""

from dataclasses import asdict

from ..diagnosis.result import Diagnosis
from ..record.schema import BASE
from ..summary import ProbeMatrix
from ..texts import language, text
from ..texts.findings import title, told
from .course import spread
from .sheet import Writer, joined
from .values import duration, named, num, t

#: of the Trainer's summary, what is not said elsewhere on the sheet
_TRAINER = ("train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second")


def result(writer: Writer) -> None:
    """Losses, the best evaluation, `num_train_epochs` for the next run, what the Trainer says itself."""
    run, evaluations = writer.summary, writer.summary.evaluations
    loss = None
    if run.train_loss is not None:
        loss = t("value.train_loss", first=num(run.train_loss[0]), last=num(run.train_loss[1]))
    writer.add("train_loss", loss, "train_loss")
    writer.add("grad_norm", spread(run.grad_norm))
    writer.add("eval_best", _point(evaluations.best), "evaluations.next_epochs" if evaluations.best is None else "")
    if evaluations.last is not None and evaluations.last != evaluations.best:
        writer.add("eval_last", _point(evaluations.last))
    epochs = None
    if evaluations.next_epochs is not None:
        key = "value.next_epochs" if evaluations.next_sure else "value.next_epochs_unsure"
        epochs = t(key, epochs=num(evaluations.next_epochs))
    writer.add("next_epochs", epochs, "evaluations.next_epochs")
    said = {name: run.results[name] for name in _TRAINER if name in run.results}
    parts = [f"{name} {duration(value) if name == 'train_runtime' else num(value)}" for name, value in said.items()]
    writer.add("trainer", joined(parts))
    predictions = [f"{name} {num(value)}" for name, value in run.results.items() if name.startswith("predict_")]
    writer.add("predictions", joined(predictions))


def _point(point: tuple[int, float | None, float] | None) -> str | None:
    if point is None:
        return None
    step, epoch, loss = point
    if epoch is None:
        return t("value.eval", loss=num(loss), step=f"{step:,}")
    return t("value.eval_epoch", loss=num(loss), step=f"{step:,}", epoch=epoch)


def evidence(writer: Writer, diagnosis: Diagnosis | None) -> None:
    """What was found, what was checked before, what the checkpoints answer and are good for."""
    run = writer.summary
    if diagnosis is not None:
        writer.add("diagnosis", t("value.diagnosis", verdict=verdict(diagnosis), headline=headline(diagnosis)))
    worth = [alert for alert in run.alerts if alert.level != "info"]
    if not worth:
        writer.add("alerts", t("value.alerts_none") if run.source == "obs" else None)
    elif any(alert.open is not None for alert in worth):
        writer.add("alerts", t("value.alerts", count=len(worth), open=len(run.open_alerts)))
    else:
        writer.add("alerts", t("value.alerts_old", count=len(worth)))
    gates = [t("value.gate", name=gate.name, status=named("status", gate.status)) for gate in run.gates]
    changed = sorted({key for gate in run.gates for key in gate.changed})
    words = joined(gates) + (t("value.gates_changed", keys=", ".join(changed)) if changed else "")
    writer.add("gates", words, "gates")
    writer.add("probes", probe_line(run.probes) if run.probes else None, "probes")
    saved = None
    if run.checkpoints:
        there = [one for one in run.checkpoints if one.on_disk]
        newest = there[-1] if there else run.checkpoints[-1]
        word = newest.name if newest.verdict is None else joined([newest.name, named("verdict", newest.verdict)])
        saved = t("value.checkpoints", count=len(run.checkpoints), there=len(there), newest=word)
    writer.add("checkpoints", saved, "checkpoints")


def verdict(diagnosis: Diagnosis) -> str:
    """The verdict's name in words."""
    name = diagnosis.verdict
    return text(f"diagnose.verdict.{name}") if name in ("healthy", "rl", "not_a_training_log") else title(name)


def headline(diagnosis: Diagnosis) -> str:
    """One sentence: what it is and what to do."""
    first = diagnosis.findings[0] if diagnosis.findings else None
    if language() != "en" and first is not None and diagnosis.headline.startswith(first.text[:40]):
        return told(first.name, first.step, first.text, first.evidence)
    return diagnosis.headline


def probe_line(matrix: ProbeMatrix) -> str:
    """The best checkpoint beside the base model, and what other suites say."""
    parts = [_best(matrix), *(t("value.probes_other", **asdict(one)) for one in matrix.others)]
    return joined(parts)


def _best(matrix: ProbeMatrix) -> str:
    totals = dict(zip(matrix.columns, matrix.totals, strict=True))
    base = totals.get(BASE)
    if matrix.best is None:
        return t("value.probes_base", passed=base[0], asked=base[1])
    passed, asked = totals[matrix.best]
    values = {"best": matrix.best, "passed": passed, "asked": asked}
    if base is None:
        return t("value.probes_no_base", **values)
    return t("value.probes", base=t("value.probe_base", passed=base[0], asked=base[1]), **values)
