"""How exact a repetition can be here, and what a drill cannot say about the real run."""

from pathlib import Path

from ...record.reader import decode_run
from ...record.schema import FOLDER, RUN
from .outcome import UNKNOWN, Measure
from .plan import Plan

#: keys with a share of dropped or noised numbers: they draw random numbers in each forward pass
_DRAWS = ("lora_dropout", "neftune_noise_alpha")


def settings_of(record: dict) -> dict[str, str]:
    """What decides how exact a repetition is, by a record's `run.json`; a setting that is not known is left out."""
    hardware, world = record.get("hardware") or {}, record.get("world") or {}
    precision, seeds = record.get("precision") or {}, record.get("seeds") or {}
    determinism, model = record.get("determinism") or {}, record.get("model") or {}
    groups = ((record.get("config") or {}).get("resolved") or {}).values()
    given = {key: value for group in groups for key, value in (group or {}).items()}
    cards = [str(card.get("name")) for card in hardware.get("gpus") or [] if isinstance(card, dict)]
    draws = ", ".join(f"{key} {given[key]}" for key in _DRAWS if given.get(key))
    switches = ", ".join(f"{name}={value}" for name, value in (determinism.get("environment") or {}).items())
    workers, plain = given.get("dataloader_num_workers"), given.get("disable_gradient_checkpointing")
    found = {
        "device": ", ".join(dict.fromkeys(cards)) or hardware.get("cpu"),
        "processes": f"{world.get('world_size')} ({world.get('engine')})" if world.get("world_size") else None,
        "precision": precision.get("compute"),
        "TF32": precision.get("tf32"),
        "attention": model.get("attn_implementation"),
        "quantization": model.get("quantization"),
        "drawn at random": draws or "nothing by LlamaFactory's keys (the model's own dropout is not looked at)",
        "seeds": f"seed {seeds.get('seed')}, data {seeds.get('data_seed_used')}" if seeds else None,
        "full_determinism": seeds.get("full_determinism"),
        "data loader": None if workers is None else f"{workers} workers",
        "data order": _order(given) if given else None,
        "gradient checkpointing": None if plain is None else not plain,
        "environment": switches or "no switch for determinism is set",
        "deterministic": determinism.get("deterministic"),
        "why": "; ".join(determinism.get("reasons") or []),
    }
    return {name: _word(value) for name, value in found.items() if value not in (None, "")} if record else {}


def settings(plan: Plan, unbroken: Path) -> list[dict]:
    """`{"setting", "drill", "run"}`: this drill, and the record of the real run where there is one (else None)."""
    here = settings_of(decode_run(unbroken / FOLDER / RUN))
    real = settings_of(decode_run(_output_dir(plan) / FOLDER / RUN))
    return [{"setting": name, "drill": value, "run": real.get(name)} for name, value in here.items()]


def limits(plan: Plan, measures: list[Measure], found: list[dict]) -> list[str]:
    """What the verdict does not cover, in sentences."""
    told = [
        f"It is about {plan.extra} steps after step {plan.steps} on this machine, with a schedule of {plan.total} steps"
        " (max_steps is fixed: with another length every learning rate would be another one)."
    ]
    unknown = [f"{one.name} ({one.why})" for one in measures if one.status == UNKNOWN]
    if unknown:
        told.append(f"Not compared: {', '.join(unknown)}.")
    real = {row["setting"]: row["run"] for row in found if row["run"] is not None}
    if not real:
        told.append(
            f"There is no record of the real run in {_output_dir(plan)}: on another device, attention kernel or number"
            " of processes it may repeat itself less exactly."
        )
    other = [row for row in found if row["run"] is not None and row["run"] != row["drill"] and row["setting"] != "why"]
    if other:
        words = "; ".join(f"{row['setting']}: {row['drill']} here, {row['run']} there" for row in other)
        told.append(f"The recorded run was made under other conditions: {words}.")
    verdict = next((row["drill"] for row in found if row["setting"] == "deterministic"), "unknown")
    if verdict != "yes":
        told.append(
            "Nothing promises that two runs agree bit for bit (see `why` among the settings); that they did here is a"
            " measurement. full_determinism: true makes torch promise it."
        )
    return told


def _output_dir(plan: Plan) -> Path:
    return Path(str(plan.config.given.get("output_dir") or "trainer_output"))


def _order(given: dict) -> str:
    order = "in the file's order" if given.get("disable_shuffling") else "shuffled by the seed"
    words = [order, *(key for key in ("packing", "neat_packing", "streaming", "ignore_data_skip") if given.get(key))]
    return ", ".join(words)


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
