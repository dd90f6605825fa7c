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
from ...record.schema import FOLDER, RUN
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
_DATA = "dataset template cutoff_len packing neat_packing mask_history train_on_prompt max_samples val_size streaming"
_DATA += " mix_strategy interleave_probs tool_format default_system enable_thinking"
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

#: name of the check, its keys, status, what will happen, the cure
_ANEW = "as before, or start anew in another output_dir"
_GROUPS = (
    ("resume_model", MODEL, FAIL, "the checkpoint's state does not fit", _ANEW),
    ("resume_scale", SCALE, FAIL, "the saved adapter counts by another factor at once", "as before"),
    ("resume_data", DATA, WARN, "other rows than in the first part", _ANEW),
    ("resume_ignored", IGNORED, WARN, "a resume ignores it, the old value goes on", f"{_ANEW} with the checkpoint's "
     "weights (adapter_name_or_path for LoRA, else model_name_or_path)"),
    ("resume_cadence", CADENCE, WARN, "a resume ignores it, the checkpoint's trainer_state.json has the old one",
     "as before"),
    ("resume_schedule", SCHEDULE, WARN, "the schedule is computed anew: the learning rate jumps", "as before"),
    ("resume_rows", ROWS, WARN, "other rows are skipped: some are seen twice, some never", "as before"),
)  # fmt: skip
#: where the cure names other keys than what has changed
_KEYS = {"resume_schedule": "schedule, warmup, max_steps and num_train_epochs"}


def check_changes(run: Effective, checkpoint: Path) -> list[Check]:
    """`resume_<group>` for what has changed, else one `resume_keys`; and `resume_left`."""
    recorded = read_record(checkpoint.parent / FOLDER / RUN)
    state = read_json(checkpoint / "trainer_state.json")
    changes = find_changes(run, read_before(run, checkpoint, state), base_rates(checkpoint))
    total, rests_on = whole_run(run, state, changes)
    if total is not None:
        changes = {key: change for key, change in changes.items() if key not in LENGTH}
        if state.get("max_steps") not in (None, total) and not _constant(run, changes):
            changes["steps"] = (state["max_steps"], total)
    changes |= cadence(run, state, total)
    checks = []
    for name, keys, status, then, fix in _GROUPS:
        of = {key: change for key, change in changes.items() if key in keys}
        if of:
            told = ", ".join(f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in of.items())
            old = {key: change[0] for key, change in of.items()}
            new = {key: change[1] for key, change in of.items()}
            checks.append(Check(name, status, new, old, f"{told}: {then}", f"{_KEYS.get(name) or ', '.join(of)} {fix}"))
    if not recorded:
        text = f"no record in {checkpoint.parent / FOLDER}: whether data, template and batch are as before is not known"
        text += "; only what the checkpoint says itself was compared"
        checks.append(Check("resume_keys", WARN, None, None, text, "compare the config with that of the first part"))
    elif not checks:
        count = sum(len(keys) for _, keys, *_ in _GROUPS)
        checks.append(Check("resume_keys", PASS, {}, {}, f"nothing that matters has changed ({count} keys compared)"))
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
            value = _value(run, key)
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


def _constant(run: Effective, changes: Changes) -> bool:
    """Does the rate stay what it is, however long the run?"""
    return run.word("lr_scheduler_type").startswith("constant") and "lr_scheduler_type" not in changes


def cadence(run: Effective, state: dict, total: int | None) -> Changes:
    """How often it logs, evaluates and saves: key -> (of the checkpoint, of the config), where they differ.

    Args:
        state: the checkpoint's `trainer_state.json`.
        total: steps of the run: below 1 a key is a share of them.
    """
    changes: Changes = {}
    for key in CADENCE:
        old, new = state.get(key), run.get(key)
        counts = run.word(f"{key.removesuffix('_steps')}_strategy") == "steps"
        if not counts or not isinstance(old, (int, float)) or not isinstance(new, (int, float)):
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
    if not isinstance(epoch, (int, float)) or not epoch or set(changes) & {*ROWS, *DATA}:
        return None, ""
    per_epoch = round(step / epoch)
    return math.ceil(run.get("num_train_epochs") * per_epoch), f" (by the checkpoint: {per_epoch} steps an epoch)"


def _left(state: dict, total: int | None, rests_on: str) -> Check:
    name, step = "resume_left", state["global_step"]
    if total is None:
        text = f"resumes at step {step}; how many steps the run has is not known here"
        return Check(name, WARN, step, None, text, "set max_steps, or let the mask gate count the rows")
    if step >= total:
        text = f"nothing left to train: the checkpoint is at step {step} of {total}{rests_on}"
        text += "; LlamaFactory makes one more step with learning rate 0 and reports more than 100 %"
        return Check(name, FAIL, step, total, text, "raise num_train_epochs or max_steps, or start anew")
    return Check(name, PASS, step, total, f"{total - step} of {total} steps are left{rests_on}")


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
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
