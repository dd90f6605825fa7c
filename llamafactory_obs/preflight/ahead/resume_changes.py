"""What differs between a config and the checkpoint that it resumes, and what becomes of it.

Seen on transformers 5.6.0: loading the optimizer puts the old learning rate, betas and weight decay back, whatever the
config says; the shape of the schedule is computed anew from the config, on the old base rate.
"""

import math
import re
from pathlib import Path

from ...checkpoint.context import ranks_by_files
from ...checkpoint.files import Incomplete, read_json
from ...checkpoint.pickle_words import training_args
from ...checkpoint.resume_state import layout_of
from ...checkpoint.torch_file import load_safely
from ...checkpoint.trainer_state import read_state
from ...record.schema import FOLDER, RUN
from ...texts import text
from ..result import FAIL, PASS, WARN, Check
from .adapter_settings import adapter_of
from .effective import Effective

#: restored with the optimizer's state: what the config says is ignored
IGNORED = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
#: the schedule is computed anew from these
LENGTH = ("num_train_epochs", "max_steps")
SCHEDULE = ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", *LENGTH, "steps")
#: which rows count as seen depends on these
_ROWS = "per_device_train_batch_size gradient_accumulation_steps seed data_seed processes disable_shuffling"
_ROWS += " train_sampling_strategy dataloader_drop_last ignore_data_skip"
ROWS = tuple(_ROWS.split())
_DATA = "stage dataset template cutoff_len packing neat_packing mask_history train_on_prompt max_samples val_size"
_DATA += " streaming mix_strategy interleave_probs tool_format default_system enable_thinking"
DATA = tuple(_DATA.split())
_MODEL = "model_name_or_path finetuning_type lora_rank lora_target additional_target use_dora optim use_muon use_galore"
_MODEL += (
    " use_apollo use_badam use_adam_mini loraplus_lr_ratio deepspeed freeze_trainable_layers freeze_trainable_modules"
)
_MODEL += " freeze_extra_modules use_llama_pro resize_vocab"
#: the saved state fits no other model or optimizer
MODEL = tuple(_MODEL.split())
#: the saved adapter counts by another factor at once: PEFT takes the factor from the config, not from the checkpoint
SCALE = ("lora_alpha", "use_rslora")
_EFFECT = "max_grad_norm lora_dropout neftune_noise_alpha label_smoothing_factor pref_beta pref_loss pref_ftx"
_EFFECT += " simpo_gamma kto_chosen_weight kto_rejected_weight bf16 fp16 pure_bf16 quantization_bit use_dft_loss"
#: they hold from the first step of the resume on, as asked
EFFECT = tuple(_EFFECT.split())

_OF_LORA = re.compile("lora|use_dora|use_rslora|additional_target")
#: the Trainer takes them from the checkpoint's trainer_state.json, whatever the config says (5.6.0:
#: `_inner_training_loop` replaces the state that `compute_steps` has filled)
CADENCE = ("save_steps", "eval_steps", "logging_steps")

Changes = dict[str, tuple[object, object]]

#: name of the check, its keys, status, the cure
_GROUPS = (
    ("resume_model", MODEL, FAIL, "anew"),
    ("resume_scale", SCALE, FAIL, "as_before"),
    ("resume_data", DATA, WARN, "anew"),
    ("resume_ignored", IGNORED, WARN, "anew_weights"),
    ("resume_cadence", CADENCE, WARN, "as_before"),
    ("resume_schedule", SCHEDULE, WARN, "as_before"),
    ("resume_rows", ROWS, WARN, "as_before"),
)


def check_changes(run: Effective, checkpoint: Path) -> list[Check]:
    """`resume_<group>` for what has changed, else one `resume_keys`; and `resume_left`."""
    recorded = read_record(checkpoint.parent / FOLDER / RUN)
    state = read_state(checkpoint)
    changes = find_changes(run, read_before(run, checkpoint, state), base_rates(checkpoint))
    total, rests_on = whole_run(run, state, changes)
    if total is not None:
        changes = {key: change for key, change in changes.items() if key not in LENGTH}
        if state.get("max_steps") not in (None, total) and not _constant(run, changes):
            changes["steps"] = (state["max_steps"], total)
    changes |= cadence(run, state, total)
    checks = []
    for name, keys, status, cure in _GROUPS:
        of = {key: change for key, change in changes.items() if key in keys}
        if of:
            told = ", ".join(f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in of.items())
            old = {key: change[0] for key, change in of.items()}
            new = {key: change[1] for key, change in of.items()}
            said = text("ahead.change.told", changes=told, then=text(f"ahead.then.{name}"))
            # where the cure names other keys than what has changed
            what = text("ahead.change.schedule_keys") if name == "resume_schedule" else ", ".join(of)
            checks.append(Check(name, status, new, old, said, text(f"ahead.fix.{cure}", keys=what)))
    if not recorded:
        said = text("ahead.change.no_record", path=checkpoint.parent / FOLDER)
        checks.append(Check("resume_keys", WARN, None, None, said, text("ahead.change.compare")))
    elif not checks:
        count = sum(len(keys) for _, keys, *_ in _GROUPS)
        checks.append(Check("resume_keys", PASS, {}, {}, text("ahead.change.nothing", count=count)))
    return [*checks, _left(state, total, rests_on)]


def find_changes(run: Effective, recorded: dict, rates: list[float]) -> Changes:
    """Key -> (old, new), of the keys above and `processes`.

    Args:
        recorded: of `read_record`, or what the checkpoint itself says where there is no record.
        rates: of `base_rates`: the truth about the learning rate, also after earlier resumes.
    """
    changes: Changes = {}
    lora = run.get("finetuning_type") == "lora"
    for key in (*IGNORED, *SCHEDULE, *ROWS, *DATA, *MODEL, *SCALE, *EFFECT):
        if key in recorded and (lora or not _OF_LORA.match(key)):
            value = _filled(run, key, recorded[key], _value(run, key))
            if not _equal(key, recorded[key], value):
                changes[key] = (_plain(recorded[key]), _plain(value))
    new = float(run.get("learning_rate"))
    if any(math.isclose(rate, new, rel_tol=1e-6) for rate in rates):
        changes.pop("learning_rate", None)
    elif rates and not run.get("loraplus_lr_ratio"):
        changes["learning_rate"] = (rates[0], new)
    if _constant(run, changes):  # of no account for a constant rate
        dropped = (*LENGTH, "warmup_steps") if run.word("lr_scheduler_type") == "constant" else LENGTH
        changes = {key: change for key, change in changes.items() if key not in dropped}
    return changes


def _value(run: Effective, key: str) -> object:
    if key == "deepspeed":  # on or off: it reads its own shards alone, and without it nobody reads them
        return bool(run.get(key))
    return run.processes if key == "processes" else run.get(key)


def _filled(run: Effective, key: str, old: object, new: object) -> object:
    """What LlamaFactory 0.9.5 writes into the arguments itself, as the record has it: the embedding for `resize_vocab`
    (`init_adapter`), the lengths of warmup_stable_decay (`create_custom_scheduler`)."""
    if key == "additional_target" and new is None and run.get("resize_vocab"):
        return old
    stable_decay = run.word("lr_scheduler_type") == "warmup_stable_decay"
    if key == "lr_scheduler_kwargs" and stable_decay and isinstance(old, dict):
        return {name: old[name] for name in ("num_stable_steps", "num_decay_steps") if name in old} | (new or {})
    return new


def _constant(run: Effective, changes: Changes) -> bool:
    """Does the rate stay what it is, however long the run?"""
    return run.word("lr_scheduler_type").startswith("constant") and "lr_scheduler_type" not in changes


def cadence(run: Effective, state: dict, total: int | None) -> Changes:
    """How often it logs, evaluates and saves: key -> (of the checkpoint, of the config), where they differ.

    Args:
        state: of `read_state`.
        total: steps of the run: below 1 a key is a share of them.
    """
    changes: Changes = {}
    for key in CADENCE:
        old, new = state.get(key), run.get(key)
        counts = run.word(f"{key.removesuffix('_steps')}_strategy") == "steps"
        if not counts or old is None or not isinstance(new, (int, float)):
            continue
        if 0 < new < 1:
            if total is None:
                continue
            new = math.ceil(total * new)
        if old != new:
            changes[key] = (old, int(new) if new == int(new) else new)
    return changes


def read_before(run: Effective, checkpoint: Path, state: dict) -> dict:
    """The arguments of the run that saved a checkpoint: of its record, else as the checkpoint says. What the adapter in
    it says of itself goes before the record: it may have come from another run."""
    recorded = read_record(checkpoint.parent / FOLDER / RUN)
    if not recorded:
        return read_checkpoint(run, checkpoint, state)
    itself = adapter_of(checkpoint, run)
    if itself.get("finetuning_type") == run.get("finetuning_type"):
        del itself["finetuning_type"]  # full and freeze save the same files
    return {**recorded, **itself, "deepspeed": layout_of(checkpoint) == "deepspeed"}


def read_checkpoint(run: Effective, checkpoint: Path, state: dict) -> dict:
    """What a checkpoint says itself about the run that saved it: plain arguments of `training_args.bin`, the adapter's
    method and rank, the batch of one process (LlamaFactory has one card in each), how many processes there were."""
    try:
        arguments = training_args(checkpoint / "training_args.bin")
    except Incomplete:
        arguments = {}
    said = {key: arguments[key] for key in (*IGNORED, *SCHEDULE, *ROWS) if key in arguments}
    if batch := state.get("train_batch_size"):
        said["per_device_train_batch_size"] = batch
    if any(checkpoint.glob("rng_state*.pth")):
        said["processes"] = ranks_by_files(checkpoint)
    return {**said, **adapter_of(checkpoint, run), "deepspeed": layout_of(checkpoint) == "deepspeed"}


def read_record(file: Path) -> dict:
    """The arguments of the run that a record describes, by key, and `processes`; {} where there is no record."""
    try:
        record = read_json(file)
        groups = record["config"]["resolved"].values()
        world = (record.get("world") or {}).get("world_size")
        groups = list(groups)
    except (Incomplete, LookupError, TypeError, AttributeError):
        return {}
    arguments = {key: value for group in groups if isinstance(group, dict) for key, value in group.items()}
    return {**arguments, "processes": world} if arguments and world else arguments


def base_rates(checkpoint: Path) -> list[float]:
    """The base learning rate of each parameter group, from scheduler.pt; [] where it says none."""
    try:
        rates = load_safely(checkpoint / "scheduler.pt").get("base_lrs")
    except Exception:  # missing or unreadable: `resume_state` says so
        return []
    return [float(rate) for rate in rates or []]


def whole_run(run: Effective, state: dict, changes: Changes) -> tuple[int | None, str]:
    """Steps that the resumed run will have in all, and what that rests on; None where that is not known.

    Where the rows were not counted, or are packed into fewer sequences, an epoch has as many steps as the checkpoint's
    state says, unless data or batch have changed since.
    """
    if run.total_steps is not None and (run.get("max_steps") > 0 or not run.packs):
        return run.total_steps, ""
    step, epoch = state["global_step"], state.get("epoch")
    per_epoch = round(step / epoch) if epoch and epoch > 0 else 0
    if not per_epoch or set(changes) & {*ROWS, *DATA}:
        return None, ""
    return math.ceil(run.get("num_train_epochs") * per_epoch), text("ahead.change.by_checkpoint", steps=per_epoch)


def _left(state: dict, total: int | None, rests_on: str) -> Check:
    name, step = "resume_left", state["global_step"]
    if total is None:
        return Check(name, WARN, step, None, text("ahead.change.unknown", step=step), text("ahead.change.set_steps"))
    if step >= total:
        said = text("ahead.change.none_left", step=step, total=total, rests_on=rests_on)
        return Check(name, FAIL, step, total, said, text("ahead.change.longer"))
    said = text("ahead.change.left", left=total - step, total=total, rests_on=rests_on)
    return Check(name, PASS, step, total, said)


def _plain(value: object) -> object:
    """An argument as the record writes it: enumerations as their value, sets and tuples as sorted or plain lists."""
    value = getattr(value, "value", value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _equal(key: str, old: object, new: object) -> bool:
    old, new = _plain(old), _plain(new)
    numbers = [isinstance(one, (int, float)) and not isinstance(one, bool) for one in (old, new)]
    if all(numbers):
        return math.isclose(old, new, rel_tol=1e-9)
    if old == new or not (old or new or any(numbers)):  # None, "", [], False: not set
        return True
    if key == "model_name_or_path":  # a moved folder is the same model
        return Path(str(old)).name == Path(str(new)).name
    if key in ("lora_target", "additional_target") and isinstance(old, list) and isinstance(new, list):
        return set(old) == set(new)
    return isinstance(old, str) and isinstance(new, str) and old.lower() == new.lower()


def _short(value: object) -> str:
    shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
