"""How exact a repetition can be here, and what a drill cannot say about the real run."""

from pathlib import Path

from ...record.reader import decode_run
from ...record.schema import FOLDER, RUN
from .outcome import UNKNOWN, Measure
from .plan import Plan
from .words import called, say

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
        "drawn at random": draws or say("value.no_draws"),
        "seeds": say("value.seeds", seed=seeds.get("seed"), data=seeds.get("data_seed_used")) if seeds else None,
        "full_determinism": seeds.get("full_determinism"),
        "data loader": None if workers is None else say("value.workers", count=workers),
        "data order": _order(given) if given else None,
        "gradient checkpointing": None if plain is None else not plain,
        "environment": switches or say("value.no_switch"),
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
    told = [say("limit.about", extra=plan.extra, steps=plan.steps, total=plan.total)]
    unknown = [
        say("limit.unknown", name=called("measure", one.name), why=one.why) for one in measures if one.status == UNKNOWN
    ]
    if unknown:
        told.append(say("limit.not_compared", names=say("joint").join(unknown)))
    real = {row["setting"]: row["run"] for row in found if row["run"] is not None}
    if not real:
        told.append(say("limit.no_record", folder=_output_dir(plan)))
    other = [row for row in found if row["run"] is not None and row["run"] != row["drill"] and row["setting"] != "why"]
    if other:
        words = say("semicolon").join(
            say(
                "limit.here_there",
                setting=say(f"setting.{row['setting']}"),
                here=value_in_words(row["drill"]),
                there=value_in_words(row["run"]),
            )
            for row in other
        )
        told.append(say("limit.other", words=words))
    verdict = next((row["drill"] for row in found if row["setting"] == "deterministic"), "unknown")
    if verdict != "yes":
        told.append(say("limit.no_promise"))
    return told


def _output_dir(plan: Plan) -> Path:
    return Path(str(plan.config.given.get("output_dir") or "trainer_output"))


def _order(given: dict) -> str:
    order = say("value.file_order" if given.get("disable_shuffling") else "value.shuffled")
    words = [order, *(key for key in ("packing", "neat_packing", "streaming", "ignore_data_skip") if given.get(key))]
    return ", ".join(words)


def value_in_words(value: str) -> str:
    """The value of a setting as a person reads it."""
    return say(f"value.{value}") if value in ("on", "off") else value


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
