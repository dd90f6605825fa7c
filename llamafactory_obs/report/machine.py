"""Which run it is, where it ran, with which settings."""

from pathlib import Path

from .sheet import Writer, joined
from .values import count, num, t


def run(writer: Writer) -> None:
    """Name, model, data, template, code, seed."""
    brief, used = writer.summary.brief, writer.summary.used
    writer.add("run", brief.run_name or Path(writer.summary.output_dir).resolve().name)
    model = brief.model
    if model and brief.model_class:
        model = t("value.model", name=model, kind=brief.model_class)
    parameters = None
    if brief.parameters and brief.trainable is not None:
        share = brief.trainable / brief.parameters
        total, trainable = count(brief.parameters), count(brief.trainable)
        parameters = t("value.parameters", total=total, trainable=trainable, share=share)
    elif brief.parameters:
        parameters = t("value.parameters_total", total=count(brief.parameters))
    writer.add("model", joined([model, parameters]), "brief.model")
    lora = None
    if used.lora_rank is not None:
        lora = t("value.lora", rank=used.lora_rank, alpha=num(used.lora_alpha), target=used.lora_target)
    writer.add("training", joined([brief.stage, brief.tuning, lora]))
    names = ", ".join(brief.datasets)
    if names and brief.rows is not None:
        rows = f"{brief.rows:,}"
        if brief.tokens is None:  # pairs, for example
            names = t("value.data_rows", names=names, rows=rows)
        else:
            names = t("value.data", names=names, rows=rows, tokens=f"{brief.tokens:,}")
    writer.add("data", names, "brief.rows")
    writer.add("eval_data", ", ".join(brief.eval_datasets))
    writer.add("template", brief.template, "brief.template")
    sha = (brief.code_sha or "")[:12]
    writer.add(
        "code", t("value.code_dirty" if brief.code_dirty else "value.code", sha=sha) if sha else None, "brief.code_sha"
    )
    writer.add("seed", None if brief.seed is None else str(brief.seed))


def machine(writer: Writer) -> None:
    """Cards, driver, processor, versions."""
    one = writer.summary.machine
    names = sorted(set(one.gpus))
    gpu = None
    if one.gpu_count == 0:
        gpu = t("value.no_gpu")
    elif len(names) == 1 and one.gpu_memory_gib:
        gpu = t("value.gpu", count=one.gpu_count or len(one.gpus), name=names[0], gib=num(one.gpu_memory_gib))
    elif names:
        gpu = t("value.gpu_other", count=one.gpu_count or len(one.gpus), names=", ".join(names))
    writer.add("gpu", gpu, "machine.gpus")
    writer.add("driver", one.driver, "machine.driver")
    writer.add("cuda", one.cuda, "machine.cuda")
    writer.add("vllm", one.vllm, "machine.vllm")
    cpu = None
    if one.cpu:
        cpu = t("value.cpu", name=one.cpu, cores=num(one.cores), ram=num(one.ram_gib))
        if (one.nodes or 1) > 1:
            cpu += t("value.nodes", nodes=one.nodes)
    writer.add("cpu", cpu, "machine.cpu")
    versions = [
        ("Python", one.python),
        ("torch", one.torch),
        ("transformers", one.transformers),
        ("LlamaFactory", one.llamafactory),
        ("PEFT", one.peft),
        ("llamafactory-obs", one.llamafactory_obs),
    ]
    writer.add("software", ", ".join(f"{name} {version}" for name, version in versions if version))


def settings(writer: Writer) -> None:
    """What LlamaFactory and the Trainer really used."""
    used = writer.summary.used
    cutoff = None
    if used.cutoff_len is not None and used.longest_row is not None:
        cutoff = t("value.cutoff_len", cutoff=f"{used.cutoff_len:,}", longest=f"{used.longest_row:,}")
    elif used.cutoff_len is not None:
        cutoff = t("value.cutoff_len_only", cutoff=f"{used.cutoff_len:,}")
    writer.add("cutoff_len", cutoff, "used.cutoff_len")
    batch = None
    if used.total_batch is not None:
        parts = (used.per_device_batch, used.accumulation, used.world_size)
        if None not in parts:
            batch = t("value.batch", each=parts[0], accumulation=parts[1], world=parts[2], total=used.total_batch)
        else:
            batch = num(used.total_batch)
    writer.add("batch", batch, "used.total_batch")
    rate = None
    if used.learning_rate is not None:
        rate = num(used.learning_rate)
        if used.schedule:
            rate = t("value.rate", rate=rate, schedule=used.schedule)
        if used.warmup_steps:
            rate = joined([rate, t("value.warmup_steps", steps=num(used.warmup_steps))])
        elif used.warmup_ratio:
            rate = joined([rate, t("value.warmup_ratio", share=used.warmup_ratio)])
    writer.add("rate", rate, "used.learning_rate")
    length = None
    if used.max_steps is not None and used.epochs is not None:
        length = t("value.length", steps=f"{used.max_steps:,}", epochs=num(used.epochs))
    elif used.max_steps is not None:
        length = t("value.max_steps", steps=f"{used.max_steps:,}")
    elif used.epochs is not None:
        length = t("value.epochs", epochs=num(used.epochs))
    writer.add("length", length, "used.max_steps")
    precision = joined(
        [
            used.precision,
            t("value.quantized", bits=used.quantization_bit) if used.quantization_bit else None,
            t("value.attention", name=used.attention) if used.attention else None,
            t("value.packing") if used.packing else None,
        ]
    )
    writer.add("precision", precision if used.precision else None, "used.precision")
    optimizer = [used.optimizer]
    if used.optimizer and used.weight_decay is not None:
        optimizer.append(t("value.decay", decay=num(used.weight_decay)))
    if used.optimizer and used.max_grad_norm is not None:
        optimizer.append(t("value.clip", norm=num(used.max_grad_norm)))
    writer.add("optimizer", joined(optimizer))
