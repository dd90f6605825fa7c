"""Identity, machine and settings of a run, out of `run.json` and the settings beside a log."""

import re

from ..logs.curves import Curves
from .parts import Brief, Machine, Used, Why


def pick(node: object, *path: str) -> object:
    """A value inside mappings; None where any of them is missing."""
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def mappings(node: object, *path: str) -> list[dict]:
    """The mappings of a list inside mappings; [] where there is none."""
    found = pick(node, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number(value: object) -> float | int | None:
    """A number that is no truth value and no whole number beyond 64 bits (which is no float), else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, float) or abs(value) < 1 << 63 else None


def words(value: object) -> str | None:
    """A text, a list of texts as one; None for nothing."""
    if isinstance(value, (list, tuple)):
        return ", ".join(str(part) for part in value) or None
    return None if value is None or value == "" else str(value)


def options(run: dict, callback: str) -> dict:
    """The options of a callback in the YAML: `{vram: {limit_gib: 24}}` or `{name: vram, args: {...}}`; {} for none."""
    for entry in _entries(run):
        if isinstance(entry, dict):
            found = entry.get(callback, entry.get("args") if entry.get("name") == callback else None)
            if isinstance(found, dict):
                return found
    return {}


def has_callback(run: dict, callback: str) -> bool:
    """Is it in the YAML's `callbacks:`?"""
    return any(
        entry == callback or (isinstance(entry, dict) and (callback in entry or entry.get("name") == callback))
        for entry in _entries(run)
    )


def _entries(run: dict) -> list:
    entries = pick(run, "config", "given", "callbacks")
    return entries if isinstance(entries, list) else []


def brief_of(curves: Curves) -> Brief:
    """Which run it is."""
    run, settings = curves.run, curves.settings
    datasets = mappings(run, "data", "datasets")
    by_role = {
        role: [str(one.get("name")) for one in datasets if (one.get("role") == "eval") == (role == "eval")]
        for role in ("train", "eval")
    }
    return Brief(
        run_name=words(settings.get("run_name")),
        model=words(pick(run, "model", "name_or_path")) or words(settings.get("model_name_or_path")),
        model_class=words(pick(run, "model", "class")),
        parameters=number(pick(run, "model", "parameters", "total")),
        trainable=number(pick(run, "model", "parameters", "trainable")),
        stage=words(settings.get("stage")),
        tuning=words(settings.get("finetuning_type")),
        datasets=by_role["train"] or _names(settings.get("dataset")),
        eval_datasets=by_role["eval"] or _names(settings.get("eval_dataset")),
        rows=number(pick(run, "data", "rows", "rows")),
        tokens=number(pick(run, "data", "rows", "tokens")),
        template=words(pick(run, "data", "settings", "template")) or words(settings.get("template")),
        code_sha=words(pick(run, "code", "sha")),
        code_dirty=pick(run, "code", "dirty") if isinstance(pick(run, "code", "dirty"), bool) else None,
        seed=number(pick(run, "seeds", "seed")) if run else number(settings.get("seed")),
        rows_sha256=words(pick(run, "data", "rows", "sha256")),
        model_sha256=words(pick(run, "model", "weights", "sha256")),
        config_sha256=words(pick(run, "model", "config_sha256")),
        template_sha256=words(pick(run, "data", "template_sha256")),
    )


def _names(value: object) -> list[str]:
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [str(name).strip() for name in names]


def machine_of(curves: Curves) -> Machine:
    """Where it ran."""
    run = curves.run
    hardware = run.get("hardware") or {}
    cards = mappings(hardware, "gpus")
    sizes = [size for card in cards if (size := number(card.get("memory_gib"))) is not None]
    main = pick(run, "packages", "main")
    main = main if isinstance(main, dict) else {}
    limits = [number(hardware.get(name)) for name in ("ram_limit_gib", "ram_gib")]
    cores = [number(hardware.get(name)) for name in ("cpu_limit", "cores_usable", "cores_logical")]
    return Machine(
        gpus=[str(card.get("name")) for card in cards],
        gpu_count=number(hardware.get("gpu_count")),
        gpu_memory_gib=min(sizes, default=None),
        driver=words(hardware.get("driver")),
        cuda=words(hardware.get("cuda_runtime")),
        vllm=words(main.get("vllm")) or _served(curves.probes),
        cpu=words(hardware.get("cpu")),
        cores=next((count for count in cores if count is not None), None),
        ram_gib=min((size for size in limits if size is not None), default=None),
        nodes=number(pick(run, "world", "nodes")),
        python=words(hardware.get("python")),
        llamafactory_obs=words(run.get("llamafactory_obs")),
        **{name: words(main.get(name)) for name in ("torch", "transformers", "llamafactory", "peft")},
    )


def _served(probes: list[dict]) -> str | None:
    """The version of the server that answered the newest probes, as its backend wrote it."""
    for row in reversed(probes):
        backend = row.get("backend")
        if isinstance(backend, dict) and backend.get("name") == "vllm":
            found = re.match(r"vLLM (\S+) at ", str(backend.get("where", "")))
            return found[1] if found else None
    return None


def used_of(curves: Curves, longest: float | None) -> Used:
    """The settings really used."""
    run, settings = curves.run, curves.settings
    world = run.get("world") or {}

    def counted(name: str, argument: str) -> int | None:
        return number(world.get(name)) or number(settings.get(argument))

    batch, accumulation = (
        counted("per_device_batch", "per_device_train_batch_size"),
        counted("gradient_accumulation", "gradient_accumulation_steps"),
    )
    size = number(world.get("world_size"))
    total = number(world.get("global_batch"))
    if total is None and None not in (batch, accumulation, size):
        total = batch * accumulation * size
    names = ("learning_rate", "warmup_steps", "warmup_ratio", "weight_decay", "max_grad_norm", "quantization_bit")
    lora = settings.get("finetuning_type") == "lora"
    return Used(
        cutoff_len=number(settings.get("cutoff_len")),
        longest_row=int(longest) if longest is not None else None,
        per_device_batch=batch,
        accumulation=accumulation,
        world_size=size,
        total_batch=total,
        schedule=words(settings.get("lr_scheduler_type")),
        optimizer=words(settings.get("optim")),
        epochs=number(settings.get("num_train_epochs")),
        max_steps=curves.max_steps,
        precision=words(pick(run, "precision", "compute")) or _precision(settings),
        packing=settings.get("packing") if isinstance(settings.get("packing"), bool) else None,
        attention=words(pick(run, "model", "attn_implementation")),
        lora_rank=number(settings.get("lora_rank")) if lora else None,
        lora_alpha=number(settings.get("lora_alpha")) if lora else None,
        lora_target=words(settings.get("lora_target")) if lora else None,
        **{name: number(settings.get(name)) for name in names},
    )


def _precision(settings: dict) -> str | None:
    return next((name for name in ("bf16", "fp16", "pure_bf16") if settings.get(name) is True), None)


def missing_facts(brief: Brief, machine: Machine, used: Used, run: dict) -> dict[str, Why]:
    """Why a field that a record should have is None: what `run.json` says itself, else that there is no record."""
    said = {
        row["what"]: str(row.get("why", "")) for row in mappings(run, "unknown") if isinstance(row.get("what"), str)
    }
    found: dict[str, Why] = {}

    def none(field: str, value: object, where: str, else_: str = "not_in_record") -> None:
        if value is not None and value != []:
            return
        why = next((said[name] for name in (where, where.rpartition(".")[0]) if name in said), None)
        if not run:
            found[field] = Why("no_record")
        elif why is not None and not (else_ == "no_git" and "not in a git repository" in why):
            found[field] = Why("said", {"why": why})
        else:
            found[field] = Why(else_)

    none("brief.model", brief.model, "model.name_or_path")
    none("brief.rows", brief.rows, "data.rows")
    none("brief.code_sha", brief.code_sha, "code.sha", "no_git")
    none("brief.template", brief.template, "data.settings.template")
    none("machine.cpu", machine.cpu, "hardware.cpu")
    if machine.gpu_count == 0:
        found["machine.gpus"] = found["machine.driver"] = Why("no_gpu")
    else:
        none("machine.gpus", machine.gpus, "hardware.gpus")
        none("machine.driver", machine.driver, "hardware.driver")
    none("machine.cuda", machine.cuda, "hardware.cuda_runtime", "cpu_torch")
    none("machine.vllm", machine.vllm, "packages.vllm", "no_vllm")
    none("machine.ram_gib", machine.ram_gib, "hardware.ram_gib")
    none("used.cutoff_len", used.cutoff_len, "data.settings.cutoff_len")
    none("used.total_batch", used.total_batch, "world.global_batch")
    none("used.learning_rate", used.learning_rate, "config.resolved.training_args")
    none("used.precision", used.precision, "precision.compute")
    none("used.max_steps", used.max_steps, "start", "no_plan")
    if used.longest_row is None:
        found["used.longest_row"] = Why("no_label_mask") if run else Why("no_record")
    return found
