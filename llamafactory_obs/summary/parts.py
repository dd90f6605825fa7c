"""What a summary says of the run itself: identity, machine, settings, starts, speed, memory, data."""

from dataclasses import dataclass, field
from typing import Literal

from ..texts import text

Ended = Literal["finished", "stopped", "notice", "interrupted", "oom", "crashed", "retried", "killed", "going"]


@dataclass(frozen=True)
class Why:
    """Why something is not known, and how to have it next time; the words are `summary.missing.<code>.*`.

    Attributes:
        code: of the reason, stable.
        values: what stands in its words.
    """

    code: str
    values: dict = field(default_factory=dict)

    def why(self, lang: str | None = None) -> str:
        """The reason, one clause."""
        return text(f"summary.missing.{self.code}.why", lang, **self.values)

    def next(self, lang: str | None = None) -> str:
        """What to do to have it next time, one clause; "" where nothing helps."""
        return text(f"summary.missing.{self.code}.next", lang, **self.values)


@dataclass(frozen=True)
class Brief:
    """Which run it is, from `run.json` (of a plain log: from the settings beside it).

    Attributes:
        run_name: as configured.
        model: `model_name_or_path`. `model_class`: of the loaded model.
        parameters, trainable: counts.
        stage: sft, pt, rm, dpo, kto, ppo. tuning: lora, full, freeze, oft.
        datasets, eval_datasets: names. rows, tokens: of the whole training set, counted (None while not hashed).
        template: LlamaFactory's name.
        code_sha, code_dirty: git of the working folder. seed.
        rows_sha256, model_sha256, config_sha256, template_sha256: fingerprints.
    """

    run_name: str | None
    model: str | None
    model_class: str | None
    parameters: int | None
    trainable: int | None
    stage: str | None
    tuning: str | None
    datasets: list[str]
    eval_datasets: list[str]
    rows: int | None
    tokens: int | None
    template: str | None
    code_sha: str | None
    code_dirty: bool | None
    seed: int | None
    rows_sha256: str | None
    model_sha256: str | None
    config_sha256: str | None
    template_sha256: str | None


@dataclass(frozen=True)
class Machine:
    """Where it ran, from `run.json` (the first rank's node).

    Attributes:
        gpus: names of the cards that the process saw. gpu_count: 0 on a CPU. gpu_memory_gib: of the smallest card.
        driver, cuda: of the NVIDIA driver; the CUDA runtime that torch is built for.
        vllm: version in the training's environment, else as a probe's server reported it.
        cpu, cores, ram_gib: processor, usable cores, memory (the container's limit where there is one).
        nodes: machines.
        python, torch, transformers, llamafactory, peft, llamafactory_obs: versions.
    """

    gpus: list[str]
    gpu_count: int | None
    gpu_memory_gib: float | None
    driver: str | None
    cuda: str | None
    vllm: str | None
    cpu: str | None
    cores: float | None
    ram_gib: float | None
    nodes: int | None
    python: str | None
    torch: str | None
    transformers: str | None
    llamafactory: str | None
    peft: str | None
    llamafactory_obs: str | None


@dataclass(frozen=True)
class Used:
    """The settings that the run really used: LlamaFactory's resolved arguments and the Trainer's own numbers.

    Attributes:
        cutoff_len: tokens. longest_row: tokens of the longest conversation seen in a batch (`data/max_length`).
        per_device_batch, accumulation, world_size, total_batch: sequences of one optimizer step are their product.
        learning_rate, schedule, warmup_steps, warmup_ratio, optimizer, weight_decay, max_grad_norm: as resolved.
        epochs: `num_train_epochs`; with `max_steps` in the config it does not count. max_steps: the Trainer's plan.
        precision: compute type. quantization_bit, packing, attention, lora_rank, lora_alpha, lora_target.
    """

    cutoff_len: int | None
    longest_row: int | None
    per_device_batch: int | None
    accumulation: int | None
    world_size: int | None
    total_batch: int | None
    learning_rate: float | None
    schedule: str | None
    warmup_steps: float | None
    warmup_ratio: float | None
    optimizer: str | None
    weight_decay: float | None
    max_grad_norm: float | None
    epochs: float | None
    max_steps: int | None
    precision: str | None
    quantization_bit: int | None
    packing: bool | None
    attention: str | None
    lora_rank: int | None
    lora_alpha: float | None
    lora_target: str | None


@dataclass(frozen=True)
class Session:
    """One start of training.

    Attributes:
        segment: number in the record.
        from_step: step it went on from (0: from the beginning). first_step, last_step: of its rows, None without any.
        process_started, began, last: Unix seconds: of the process (None in older records), of the first training
            event, of the last sign of life.
        load_s: seconds from the process's start to the first step's begin (model and data); None where unknown.
        train_s: seconds of training by the record's clock, jumps of the clock taken out.
        after_s: seconds from its end to the last sign of life: an evaluation after training.
        wall_s: `load_s` + `train_s` + `after_s`: what the machine was kept for. Saving the last weights is not in it.
        ended: finished (all planned steps), stopped (before the plan's end, cleanly), notice (the machine was taken
            back), interrupted (Ctrl-C, sys.exit), oom, crashed, retried (auto_find_batch_size), killed (without a
            word), going (a process holds the run, or wrote within the last minutes).
        by: who stopped it ("control pid 14417 on vm", "auto", "alert stalled", "early_stopping", ...), "" if nobody.
        why: the words of the record: the error, the finding, the signal; "" where there are none.
        pause_s: seconds until the next start; None for the last.
        repeated_steps: steps of it that a later start made again.
    """

    segment: int
    from_step: int
    first_step: int | None
    last_step: int | None
    process_started: float | None
    began: float | None
    last: float | None
    load_s: float | None
    train_s: float | None
    after_s: float
    wall_s: float | None
    ended: Ended
    by: str = ""
    why: str = ""
    pause_s: float | None = None
    repeated_steps: int = 0


@dataclass(frozen=True)
class Spread:
    """A column over the rows that have it: mean, median, 5th and 95th percentile (nearest rank), number of rows."""

    mean: float
    median: float
    p5: float
    p95: float
    rows: int


@dataclass(frozen=True)
class Memory:
    """The fullest moment of any start, of the fullest card.

    Attributes:
        allocated_gib, reserved_gib: highest `system/peak_allocated_gib`, `system/peak_reserved_gib`.
        device_gib: highest use of the whole card by all processes. rss_gib: of the process, where there is no GPU.
        limit_gib, limit_from: what the run was to keep to, and which setting says so ("" none: the card's size).
        share: reserved / limit.
    """

    allocated_gib: float | None
    reserved_gib: float | None
    device_gib: float | None
    rss_gib: float | None
    limit_gib: float | None
    limit_from: str
    share: float | None


@dataclass(frozen=True)
class Data:
    """What was in the batches, counted over the steps that stand (`data/*`).

    Attributes:
        tokens, supervised_tokens, samples: sums. tokens_all: tokens of repeated steps included.
        supervised_ratio: supervised / real tokens. padding_ratio: padding / all positions. truncated_ratio: samples as
            long as cutoff_len / samples. fully_masked: samples without a label.
        wanted_ratio: range of the mask ratio that the run's settings call right; None where there is none.
    """

    tokens: int | None
    tokens_all: int | None
    supervised_tokens: int | None
    samples: int | None
    supervised_ratio: float | None
    padding_ratio: float | None
    truncated_ratio: float | None
    fully_masked: int | None
    wanted_ratio: tuple[float, float] | None
