"""`summarize`: all facts of a run in one object."""

from pathlib import Path

from .alerts import alerts_of
from .evaluations import epochs_at, evaluations_of
from .identity_facts import brief_of, machine_of, missing_facts, used_of
from .kept import checkpoints_of, earlier_runs, gates_of, notes_of, results_of
from .loaded import Loaded, load
from .measures import (
    data_of,
    gpu_use,
    losses,
    memory_of,
    missing_measures,
    spread,
    step_seconds,
    tokens_per_s,
    values_of,
)
from .model import RunSummary
from .parts import Session, Why
from .price import price_of
from .probes import probes_of
from .sessions import sessions_of


def summarize(path: str | Path | Loaded, now: float | None = None) -> RunSummary:
    """The facts of a run. `model.RunSummary` documents each field with its unit and source.

    Args:
        path: the run's output folder, its `obs/` folder, any log that `diagnose` reads, or what `load` gave.
        now: Unix seconds, for tests.

    Raises:
        ConfigError: there is nothing to read, in one line.
    """
    loaded = path if isinstance(path, Loaded) else load(path)
    curves = loaded.curves
    sessions, remarks = sessions_of(loaded, now)
    highest = [one.highest["data/max_length"] for one in loaded.stretches.values() if "data/max_length" in one.highest]
    brief, machine = brief_of(curves), machine_of(curves)
    used = used_of(curves, max(highest or values_of(curves, "data/max_length"), default=None))
    memory, data = memory_of(loaded), data_of(loaded)
    evaluations, missing_epochs = evaluations_of(curves)
    checkpoints, missing_checkpoints = checkpoints_of(loaded)
    probes, missing_probes = probes_of(curves)
    rates, mean_rate = tokens_per_s(curves)
    use, use_low = gpu_use(curves)
    seconds = step_seconds(curves)
    measured = {"step_s": seconds, "tokens_per_s": rates, "mean_tokens_per_s": mean_rate, "gpu_util": use}
    measured |= {f"memory.{name}": getattr(memory, name) for name in ("reserved_gib", "allocated_gib")}
    shares = ("tokens", "supervised_ratio", "padding_ratio", "truncated_ratio")
    measured |= {f"data.{name}": getattr(data, name) for name in shares}
    started = next((one.process_started or one.began for one in sessions if one.began), None)
    gates, missing_gates = gates_of(loaded, started)
    train_s, wall_s = _sum(sessions, "train_s"), _sum(sessions, "wall_s")
    price, steps = price_of(curves), max(curves.steps, default=0)
    missing = missing_facts(brief, machine, used, curves.run) | missing_measures(loaded, measured)
    missing |= missing_epochs | missing_checkpoints | missing_gates | missing_probes
    if wall_s is None:
        missing["wall_s"] = missing["machine_hours"] = Why("no_clock" if loaded.record else "no_record")
    elif any(one.load_s is None for one in sessions):
        missing["sessions.load_s"] = Why("no_process_start")
    if not sessions:
        missing["sessions"] = Why("no_record")
    if price is None:
        missing["cost"] = Why("no_price")
    return RunSummary(
        path=str(loaded.path),
        output_dir=str(loaded.output_dir),
        source=curves.source,
        going=bool(sessions) and sessions[-1].ended == "going",
        brief=brief,
        machine=machine,
        used=used,
        sessions=sessions,
        steps=steps,
        planned_steps=curves.max_steps,
        epoch=epochs_at(curves, [steps])[0] if steps else None,
        repeated_steps=sum(one.repeated_steps for one in sessions),
        started=started,
        ended=max((one.last for one in sessions if one.last), default=None),
        train_s=train_s,
        wall_s=wall_s,
        machine_hours=None if wall_s is None else wall_s / 3600 * (machine.nodes or 1),
        step_s=seconds,
        tokens_per_s=rates,
        mean_tokens_per_s=mean_rate,
        memory=memory,
        gpu_util=use,
        gpu_util_low=use_low,
        data=data,
        train_loss=losses(curves),
        grad_norm=spread(values_of(curves, "train/grad_norm")),
        results=results_of(loaded.output_dir),
        evaluations=evaluations,
        checkpoints=checkpoints,
        gates=gates,
        probes=probes,
        alerts=alerts_of(curves.events),
        notes=notes_of(loaded),
        price=price,
        earlier_runs=earlier_runs(loaded),
        missing=missing,
        remarks=[*curves.notes, *remarks],
    )


def _sum(sessions: list[Session], name: str) -> float | None:
    values = [value for one in sessions if (value := getattr(one, name)) is not None]
    return sum(values) if values else None
