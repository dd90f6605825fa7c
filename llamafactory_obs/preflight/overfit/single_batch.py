"""The single-batch test: one batch over and over, on a copy of the run that leaves nothing behind."""

import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...errors import ConfigError
from ...record.reader import load_record
from ...texts import text
from ..rehearsal import child, data
from ..rehearsal.choose import longest, ordinary
from ..rehearsal.derive import GONE, derive, without, write_config
from ..rehearsal.rows import Rows, training_rows
from ..run_config import RunConfig
from ..signals import signals_raise
from .causes import causes_of, causes_of_log
from .outcome import FAILED, KNOWN, LEARNED, NOT_LEARNED, Cause, Outcome
from .rule import Rule

#: what would blur the loss of a batch, or mean more than a batch
_CHANGES = {
    "gradient_accumulation_steps": 1,
    "save_strategy": "no",
    "save_steps": GONE,
    "packing": False,
    "neat_packing": GONE,
    "weight_decay": 0.0,
    "lora_dropout": 0.0,
    "neftune_noise_alpha": GONE,
    "label_smoothing_factor": 0.0,
    "moe_aux_loss_coef": GONE,
    "logging_nan_inf_filter": False,
    "preprocessing_num_workers": GONE,
    "dataloader_num_workers": 0,  # each step is an epoch: workers would start anew for it
    "dataloader_prefetch_factor": GONE,
    "dataloader_persistent_workers": GONE,
}
_CALLBACKS = [
    "grad_norm_spike",
    {"layer_norms": {"every": 10, "weights_every": 10}},
    "label_mask",
    "vram",
    "llamafactory_obs.preflight.overfit.callback.StopWhenLearned",
]
#: seconds between two lines of progress
_PROGRESS_S = 5.0


def single_batch(
    config: RunConfig,
    *,
    steps: int,
    wanted: tuple[str, ...] = (),
    take_longest: bool = False,
    rate: float | None = None,
    say: Callable[[str], None],
) -> Outcome:
    """Can model and pipeline learn one batch?

    Args:
        config: of the real run; nothing of it is written to.
        steps: at most.
        wanted: rows as `12` or `NAME:12`; none lets them be chosen.
        take_longest: the longest rows instead of ordinary ones.
        rate: in place of the config's learning rate.
        say: takes a line of progress.

    Raises:
        ConfigError: the config or its data cannot be read, or a row is not there.
    """
    plain = replace(config, given={**without(config.given, ["neat_packing"]), "packing": False})
    with signals_raise(), tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as name:
        folder = Path(name)
        with training_rows(plain) as rows:
            count, notes = child.processes()
            micro = rows.arguments.training.per_device_train_batch_size
            batch = _pick(rows, micro * count, wanted, take_longest)
            if not batch:
                cause = Cause(
                    "labels_masked", text("overfit.cause.no_row", count=len(rows)), text("overfit.cause.see_mask")
                )
                return Outcome(NOT_LEARNED, [], steps, causes=[cause], notes=rows.notes)
            outcome = Outcome(FAILED, [rows.named(p) for p in batch], steps, notes=[*rows.notes, *notes])
            keys = data.write(rows, [batch], folder / "data")
        changes = {**_CHANGES, "max_steps": steps, **({} if rate is None else {"learning_rate": rate})}
        derived = derive(config, keys, folder / "out", list(_CALLBACKS), changes)
        write_config(derived, folder / "overfit.yaml", "the single-batch test")
        size = text("overfit.size", count=len(batch), length=int(rows.length[batch].max()))
        say(text("overfit.loading", size=size, steps=steps))
        env = child.environment(folder, config.given, derived.given)
        ended = child.train(folder / "overfit.yaml", folder / "out", folder / "log", env, _progress(steps, say))
        outcome.seconds, outcome.last_words = ended.seconds, ended.last_words
        _judge(outcome, folder / "out", derived.given, ended.exit_code)
    return outcome


def _pick(rows: Rows, size: int, wanted: tuple[str, ...], take_longest: bool) -> list[int]:
    """Positions of the batch's rows; empty where no row has anything to learn."""
    if not wanted:
        if take_longest:
            return longest(rows.length, rows.labels, size)
        return ordinary(rows.length, rows.labels, size, rows.arguments.training.seed)
    found = [_find(rows, word) for word in wanted]
    if len(found) > size:
        raise ConfigError(
            f"--row: {len(found)} rows, but the config's batch holds {size} (per_device_train_batch_size)"
        )
    return [found[i % len(found)] for i in range(size)]


def _find(rows: Rows, word: str) -> int:
    name, _, number = word.rpartition(":")
    if not re.fullmatch(r"\d+", number):
        raise ConfigError(f"--row must be a row number such as 12, or NAME:12, got {word!r}")
    if not name and len(rows.names) > 1:
        raise ConfigError(f"--row {word}: of which data set? Write NAME:{number} ({', '.join(rows.names)})")
    if name and name not in rows.names:
        raise ConfigError(f"--row {word}: the config has no data set {name!r} ({', '.join(rows.names)})")
    here = (rows.row == int(number)) & (rows.dataset == (rows.names.index(name) if name else 0))
    if not here.any():
        raise ConfigError(f"--row {word}: no such row in the training split, or LlamaFactory leaves it out")
    position = int(here.argmax())
    if not rows.labels[position]:
        raise ConfigError(f"--row {word}: no token of this row is in the loss; see `llamafactory-obs mask RUN.yaml`")
    return position


def _progress(steps: int, say: Callable[[str], None]) -> Callable[[dict], None]:
    said = -_PROGRESS_S

    def on_step(row: dict) -> None:
        nonlocal said
        loss = row.get("train/loss")
        if loss is not None and time.monotonic() - said >= _PROGRESS_S:
            said = time.monotonic()
            say(text("overfit.step", step=row["step"], steps=steps, loss=loss))

    return on_step


def _judge(outcome: Outcome, out: Path, given: dict, exit_code: int) -> None:
    try:
        record = load_record(out)
    except ConfigError:
        record = None
    losses = [loss for loss in (record.steps.get("train/loss", []) if record else []) if loss is not None]
    outcome.losses = losses
    if losses:
        outcome.target = Rule.target(losses[0])
        outcome.learning_rate = max((r for r in record.steps.get("train/lr", []) if r is not None), default=None)
    if losses and any(Rule.learned(losses[0], loss) for loss in losses):
        outcome.status = LEARNED
    elif exit_code or not losses:
        outcome.causes = causes_of_log(outcome.last_words, given)
    elif Rule.known(losses[0]) and max(record.steps.get("data/supervised_tokens") or [1]):
        outcome.status = KNOWN
    else:
        outcome.status, outcome.causes = NOT_LEARNED, causes_of(record, given)
