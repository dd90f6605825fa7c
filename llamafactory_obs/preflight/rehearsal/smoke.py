"""The smoke run: the same config for 10 steps and one checkpoint, in its own folder, the longest rows included."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ... import __version__
from ...errors import ConfigError
from ...texts import text
from ...texts.sentences import sentence
from ..run_config import RunConfig
from ..signals import signals_raise
from . import child, data
from .choose import Batches, Choice, choose, choose_packed
from .derive import Derived, derive, write_config
from .folder import check_folder, prepare, write_marker
from .packing import blocks_of
from .rows import Rows, training_rows

CONFIG, LOG, DATA = "smoke.yaml", "smoke.log", "smoke_data"


@dataclass(frozen=True)
class SmokeRun:
    """A smoke run that was made, whether its training succeeded or not.

    Attributes:
        folder: its output folder, with `obs/`, the checkpoint, the derived config, the rows and the marker.
        log: what the training printed.
        exit_code: of the training: 0, or not; negative for a signal.
        seconds: with loading.
        marker: what stands in the marker file.
        last_words: of the log where the training failed.
    """

    folder: Path
    log: Path
    exit_code: int
    seconds: float
    marker: dict
    last_words: list[str]


def run_smoke(config: RunConfig, folder: Path, *, steps: int = 10, say: Callable[[str], None]) -> SmokeRun:
    """Make a smoke run; a training that fails is an answer and no exception.

    Args:
        config: of the real run.
        folder: new, empty, or that of an earlier smoke run, which is emptied.
        steps: optimizer steps; a checkpoint is saved after the last.
        say: takes a line of progress.

    Raises:
        ConfigError: the config or its data cannot be read, or the folder is another's.
    """
    check_folder(config, folder)
    with training_rows(config) as rows:
        count, notes = child.processes()
        batches = _batches(rows, steps, count)
        choice = _choose(rows, batches)
        notes = [*rows.notes, *notes, *_notes(config, rows, batches)]
        prepare(folder)
        marker = _marker(config, rows, batches, choice, notes)
        write_marker(folder, marker)  # first: from here on the folder is known as ours
        keys = data.write(rows, choice.steps, folder / DATA)
    derived = _derive(config, folder, keys, steps)
    notes += [f"callback {name} is left out" for name in derived.left_out]
    marker |= {"changed": derived.changed, "callbacks_left_out": derived.left_out, "notes": notes}
    write_config(derived, folder / CONFIG, "made from the config of a real run; what was changed stands beside it")
    write_marker(folder, marker)
    for note in notes:
        say(text("smoke.say", said=sentence(note)))
    say(text("smoke.say", said=sentence(f"{_describe(marker)}; log: {folder / LOG}")))
    started = time.monotonic()
    try:
        with signals_raise(), tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as scratch:
            env = child.environment(Path(scratch), config.given, derived.given)
            ended = child.train(folder / CONFIG, folder, folder / LOG, env, lambda row: say(step_line(row, steps)))
    except BaseException:
        write_marker(folder, marker | {"interrupted": True, "seconds": round(time.monotonic() - started, 1)})
        raise
    marker |= {"exit_code": ended.exit_code, "seconds": round(ended.seconds, 1), "last_words": ended.last_words}
    write_marker(folder, marker)
    return SmokeRun(folder, folder / LOG, ended.exit_code, ended.seconds, marker, ended.last_words)


def step_line(row: dict, steps: int) -> str:
    """One row of the record for a person: `step 3/10  loss 1.234  grad norm 0.51  longest 512  0.8 s`."""
    columns = {"train/loss": "loss", "train/grad_norm": "grad_norm"}
    columns |= {"data/max_length": "longest", "system/peak_reserved_gib": "peak"}
    found = [text(f"smoke.row.{name}", value=row[key]) for key, name in columns.items() if row.get(key) is not None]
    return "  ".join([text("smoke.row.step", step=row["step"], steps=steps), *found])


def _batches(rows: Rows, steps: int, processes: int) -> Batches:
    training = rows.arguments.training
    micro, accumulation = training.per_device_train_batch_size, training.gradient_accumulation_steps
    if steps < 1 or micro < 1 or accumulation < 1:
        raise ConfigError(f"nothing to train: {steps} steps, batch size {micro}, accumulation {accumulation}")
    return Batches(steps, micro, accumulation, processes)


def _choose(rows: Rows, batches: Batches) -> Choice:
    seed = rows.arguments.training.seed
    if rows.block is None:
        return choose(rows.length, rows.labels, rows.dataset, batches, seed)
    return choose_packed(rows.length, rows.dataset, batches, seed, blocks_of(rows.arguments))


def _notes(config: RunConfig, rows: Rows, batches: Batches) -> list[str]:
    notes = ["no evaluation takes part: one that runs out of memory is not covered"]
    if rows.block is not None:
        notes.append(f"packing: every sequence has {rows.block} tokens, so each micro-batch is as long as the longest")
    elif len(rows) < batches.steps * batches.per_step:
        notes.append(f"the data has {len(rows)} rows, fewer than {batches.steps} steps need: they are repeated")
    if rows.arguments.finetuning.stage == "kto":
        notes.append("kto: the pairs for its KL term depend on the neighbours of a row; their length is not chosen")
    if rows.has_media:
        notes.append("media: the longest rows are those with most tokens; what a picture costs besides is not seen")
    if config.given.get("auto_find_batch_size"):
        notes.append("auto_find_batch_size: after running out of memory it goes on with a smaller batch")
    return notes


def _marker(config: RunConfig, rows: Rows, batches: Batches, choice: Choice, notes: list[str]) -> dict:
    used = [p for step in choice.steps for p in step]
    by_name: dict[str, list[int]] = {name: [] for name in rows.names}
    for position in used:
        by_name[rows.names[int(rows.dataset[position])]].append(int(rows.row[position]))
    return {
        "kind": "smoke",
        "llamafactory_obs": __version__,
        "time": time.time(),
        "config": str(config.path),
        "steps": batches.steps,
        "batch": {"micro": batches.micro, "accumulation": batches.accumulation, "processes": batches.processes},
        "rows_in_data": len(rows),
        "rows": by_name,
        "longest": {
            "length": rows.block or int(rows.length.max()),
            "steps": choice.longest_in,
            "rows": [rows.named(p) for p in choice.longest],
        },
        "block": rows.block,
        "exit_code": None,
        "notes": notes,
    }


def _derive(config: RunConfig, folder: Path, keys: dict, steps: int) -> Derived:
    vram = {k: v for k, v in (config.options_of("vram") or {}).items() if k in ("limit_gib", "margin_gib")}
    callbacks = ["grad_norm_spike", {"layer_norms": {"every": 1, "weights_every": 1}}, {"label_mask": {"min_steps": 3}}]
    callbacks.append({"vram": vram} if vram else "vram")
    changes = {"max_steps": steps, "save_strategy": "steps", "save_steps": steps}
    return derive(config, keys, folder.absolute(), callbacks, changes)


def _describe(marker: dict) -> str:
    batch, longest = marker["batch"], marker["longest"]
    said = f"{marker['steps']} steps of {batch['micro']} x {batch['accumulation']} x {batch['processes']} rows"
    if longest["steps"]:
        said += f"; the longest ({longest['length']} tokens) fill a micro-batch of step {longest['steps'][0]}"
    return said
