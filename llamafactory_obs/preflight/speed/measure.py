"""The measuring run: the same config in a process and a folder of its own, and what its numbers mean."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...record.reader import load_record
from ...texts import text
from ..ahead.disk import existing
from ..ahead.effective import Effective
from ..rehearsal import child
from ..rehearsal.derive import write_config
from ..run_config import RunConfig, parsed
from ..signals import signals_raise
from .advice import advise, starts_to_pay
from .counts import Counts, counts_of
from .derived import derive
from .joined import Joined, Timed
from .layers import Steps, occasional
from .report import Report

#: rows of a split that are tokenised, at least; and the steps that they should be enough for
_ROWS, _STEPS = 2000, 40
_RESULT = "speed.json"
#: seconds between two lines of progress
_PROGRESS_S = 5.0


@dataclass(frozen=True)
class Wish:
    """What is asked for.

    Attributes:
        steps: measured steps of a block; None lets them be chosen.
        evaluate, save: measure these.
        callbacks: those that are not ours take part.
        price: of an hour of the machine, in any currency.
    """

    steps: int | None = None
    evaluate: bool = True
    save: bool = True
    callbacks: bool = False
    price: float | None = None


def measure_speed(config: RunConfig, wish: Wish, say: Callable[[str], None]) -> Report:
    """Measure a run's speed in layers; a run that breaks off is an answer and no exception.

    Args:
        config: of the real run; nothing of it is written to.
        say: takes a line of progress.

    Raises:
        ConfigError: the config cannot be read, or its stage has no steps of this kind.
    """
    if config.given.get("stage") == "ppo":
        raise ConfigError("stage ppo: it generates while it trains, in a loop of its own; not covered")
    began = time.monotonic()
    with parsed(config) as arguments:
        run = Effective(config, arguments)
        if not run.get("do_train"):
            raise ConfigError(f"{config.path}: do_train is not true: this config trains nothing")
        counts_late = run.get("max_steps") <= 0
        if counts_late and run.get("num_train_epochs") <= 0:
            raise ConfigError(f"{config.path}: a run without steps; give num_train_epochs or max_steps")
        options = _options(run, wish)
        with signals_raise(), tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as name:
            folder, place = Path(name), _beside(run.output_dir)
            with tempfile.TemporaryDirectory(prefix=".llamafactory-obs-speed-", dir=place or name) as out:
                derived, names, limits = derive(config, Path(out), options, wish.callbacks)
                if place is None and wish.save:
                    limits.append(text("speed.measure.elsewhere"))
                write_config(derived, folder / "speed.yaml", "measures the speed of a run; made from its config")
                env = _environment(folder, config.given, derived.given)
                say(text("speed.measure.loading"))
                ended = child.train(folder / "speed.yaml", Path(out), folder / "log", env, _progress(say))
                try:
                    found = json.loads((Path(out) / _RESULT).read_text(encoding="utf-8"))
                    record = load_record(out)
                except (OSError, ValueError, ConfigError):
                    words = ended.last_words or child.last_words(folder / "log")
                    if ended.exit_code == 2:  # our own refusal: wrong options of a callback
                        raise ConfigError(words[-1].removeprefix("llamafactory-obs: ")) from None
                    return Report(config.path.name, limits=limits, seconds=time.monotonic() - began, failed=words)
        found |= {
            "accumulation": run.get("gradient_accumulation_steps"),
            "persistent_workers": bool(run.get("dataloader_persistent_workers")),
        }
        sequences = _sequences(found, evaluation=False)
        counts = counts_of(Effective(config, arguments, sequences)) if sequences or not counts_late else None
        if counts is None:
            raise ConfigError(f"{config.path}: how many steps the run has is not known; give max_steps")
    rows = {step: _row(record.steps, i) for i, step in enumerate(record.steps["step"])}
    report = _judge(config, Joined(found["steps"], rows), found, counts, names, wish, limits)
    report.seconds = time.monotonic() - began
    return report


def _options(run: Effective, wish: Wish) -> dict:
    per_step = run.get("per_device_train_batch_size") * run.get("gradient_accumulation_steps")
    has_rows = bool(run.get("eval_dataset")) or run.get("val_size") >= 1e-6
    evaluates = run.word("eval_strategy") != "no" or bool(run.get("do_eval"))
    return {
        "steps": wish.steps,
        "rows": max(_ROWS, _STEPS * per_step, (wish.steps or 0) * per_step),
        "log": run.word("logging_strategy") != "no",
        "evaluate": wish.evaluate and has_rows and evaluates,
        "save": wish.save and run.word("save_strategy") != "no",
    }


def _beside(output_dir: Path) -> Path | None:
    """Where a folder on the disk of `output_dir` can be made; None where it cannot."""
    place = existing(output_dir.absolute().parent)
    return place if os.access(place, os.W_OK | os.X_OK) else None


def _environment(scratch: Path, given: dict, derived: dict) -> dict[str, str]:
    """One process, whatever the launcher would start."""
    env = child.environment(scratch, given, derived)
    env["NPROC_PER_NODE"] = "1"
    for name in ("USE_RAY", "TENSORBOARD_LOGGING_DIR"):
        env.pop(name, None)
    if given.get("deepspeed"):
        env["FORCE_TORCHRUN"] = "1"  # LlamaFactory wants it
    return env


def _progress(say: Callable[[str], None]) -> Callable[[dict], None]:
    said = time.monotonic()

    def on_step(row: dict) -> None:
        nonlocal said
        if time.monotonic() - said >= _PROGRESS_S:
            said = time.monotonic()
            say(text("speed.measure.steps", step=row["step"]))

    return on_step


def _row(columns: dict[str, list], i: int) -> dict:
    return {name: values[i] for name, values in columns.items() if values[i] is not None}


def _sequences(found: dict, evaluation: bool) -> int | None:
    """Sequences of the whole training or evaluation data, where a part of it was tokenised: in proportion."""
    splits = [one for one in found["preparation"]["splits"] if one["evaluation"] == evaluation]
    if not splits:
        return found["evaluation"]["of"] if evaluation else found["train_sequences"]
    if any(one["sequences"] is None for one in splits):
        return None
    return sum(round(one["sequences"] * one["rows"] / max(one["taken"], 1)) for one in splits)


def _judge(
    config: RunConfig, joined: Joined, found: dict, counts: Counts, names: list[str], wish: Wish, limits: list[str]
) -> Report:
    current = found["current_workers"]
    steps = Steps(joined, current)
    callbacks = steps.callbacks(found["callbacks_s"], names)
    layers = [steps.model(), steps.loader(steps.loaded, current), callbacks]
    if counts.log_every:
        layers.append(steps.logging(counts.log_every))
    evaluation, saving = _evaluation(joined, found, counts, limits), _saving(joined, found, counts, limits)
    layers += [evaluation, saving]
    advice = advise(found, joined, steps, counts.steps / counts.passes)
    report = Report(config.path.name, found["device"], [layer for layer in layers if layer is not None])
    report.tokens_per_step, report.advice, report.limits = steps.tokens, advice, limits
    report.padding = 1 - steps.tokens / steps.cells if steps.cells and steps.tokens else None
    report.noise = 2 * steps.noise_s / steps.model_s if steps.noise_s == steps.noise_s else None
    measured = sum(step.whole for step in steps.loaded) / len(steps.loaded)
    report.check = {"measured_step": measured, "model_and_loader": sum(one.seconds_per_step for one in layers[:2])}
    report.preparation = _preparation(found)
    report.whole_run = _whole_run(report, steps.loaded, counts, found, wish)
    _add_limits(config, found, counts, wish, limits)
    return report


def _evaluation(joined: Joined, found: dict, counts: Counts, limits: list[str]):
    rows = joined.after("evaluate")
    if not rows or not counts.evaluations:
        return None
    measured, whole = found["evaluation"]["rows"], _sequences(found, evaluation=True)
    seconds = rows[-1]["time/eval_s"]
    if whole is None:
        limits.append(text("speed.measure.stream", measured=measured))
    each = seconds * max(whole or measured, measured) / max(measured, 1)
    part = (
        text("speed.measure.part", measured=measured, whole=whole)
        if whole and whole > measured
        else text("speed.measure.rows", rows=whole or measured)
    )
    detail = text("speed.measure.evaluations", count=counts.evaluations, each=each, part=part if whole else "a stream")
    return occasional("evaluation", each, counts.evaluations, counts.steps, detail)


def _saving(joined: Joined, found: dict, counts: Counts, limits: list[str]):
    rows, save = joined.after("save"), found.get("save") or {}
    if save and save["bytes"] is None:
        room = text("speed.measure.room", free=save["free_bytes"] / 2**30, needed=save["estimated_bytes"] / 2**30)
        limits.append(text("speed.measure.no_save", room=room))
    if not rows or not counts.saves:
        return None
    seconds = rows[-1]["time/checkpoint_s"]
    detail = text("speed.measure.saves", count=counts.saves, seconds=seconds, size=_size(save["bytes"]))
    return occasional("saving", seconds, counts.saves, counts.steps, detail)


def _preparation(found: dict) -> dict:
    """Seconds before step 1, the first time: a later start finds the tokens in the cache of `datasets`."""
    splits = found["preparation"]["splits"]
    tokenize = sum(one["seconds"] * (one["rows"] or 0) / max(one["taken"] or 0, 1) for one in splits)
    part = sum(one["seconds"] for one in splits)
    read = found["preparation"]["read_s"]
    return {
        "read_seconds": read,
        "tokenize_seconds": tokenize,
        "rows_tokenized": sum(one["taken"] or 0 for one in splits),
        "rows": sum(one["rows"] or 0 for one in splits),
        "rest_seconds": max(0.0, found["started_s"] - read - part),
    }


def _whole_run(report: Report, loaded: list[Timed], counts: Counts, found: dict, wish: Wish) -> dict:
    current = found["current_workers"]
    starts = counts.passes if starts_to_pay(found, loaded, current) else 1
    training = report.seconds_per_step * counts.steps + max(found["starts"].get(str(current), [0.0])) * starts
    before = sum(report.preparation[f"{name}_seconds"] for name in ("read", "tokenize", "rest"))
    hours = (training + before) / 3600
    return {
        "steps": counts.steps,
        "processes": counts.processes,
        "log_every": counts.log_every,
        "evaluations": counts.evaluations,
        "saves": counts.saves,
        "hours": hours,
        "hours_by_layer": {one.name: one.seconds_per_step * counts.steps / 3600 for one in report.layers},
        "hours_before_step_1": before / 3600,
        "price_per_hour": wish.price,
        "price": None if wish.price is None else hours * wish.price,
    }


def _add_limits(config: RunConfig, found: dict, counts: Counts, wish: Wish, limits: list[str]) -> None:
    if counts.processes > 1:
        limits.append(text("speed.measure.one_process", n=counts.processes))
    if config.given.get("deepspeed") and counts.processes > 1:
        limits.append(text("speed.measure.deepspeed"))
    if not wish.evaluate and counts.evaluations:
        limits.append(text("speed.measure.no_eval"))
    if not wish.save and counts.saves:
        limits.append(text("speed.measure.no_saving"))
    prepared = found["preparation"]["splits"]
    if any(one["rows"] is not None and one["taken"] < one["rows"] for one in prepared):
        taken, rows = sum(one["taken"] for one in prepared), sum(one["rows"] for one in prepared)
        limits.append(text("speed.measure.in_proportion", taken=taken, rows=rows))


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
