"""What to change when a run does not fit, in order, each recomputed by the same estimator."""

from dataclasses import asdict, dataclass, replace

from ... import texts
from ...errors import ConfigError
from ..run_config import RunConfig
from .estimate import Estimate, estimate
from .setup import Setup

#: a change that saves less is not worth a line
_WORTH_GIB = 0.05
#: model types that LlamaFactory's `apply_liger_kernel` knows
_LIGER = """
    gemma gemma2 gemma3 gemma3_text glm glm4 glm4v granite llama llava mistral mixtral mllama olmo2 paligemma phi3
    qwen2 qwen2_vl qwen2_5_vl qwen3 qwen3_moe qwen3_next qwen3_5 gpt_oss
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class Remedy:
    """One change, on top of those before it.

    Attributes:
        name: for programs: `batch`, `evaluation batch`, `checkpointing`, `cutoff`, `liger`, `4 bit`, `8-bit optimizer`,
            `pure_bf16`, `lora`, `neighbour`.
        change: YAML keys and their new values; empty for the neighbour.
        saves_gib: less than before this change.
        total_gib: needed after it.
        fits: whether that is within the limit.
        text: one line for people.
    """

    name: str
    change: dict
    saves_gib: float
    total_gib: float
    fits: bool
    text: str

    def as_dict(self) -> dict:
        """For `--json`."""
        return asdict(self)


def remedies(
    config: RunConfig,
    estimate_: Estimate,
    limit: float,
    *,
    longest_tokens: int | None = None,
    others_gib: float = 0.0,
) -> list[Remedy]:
    """The changes to make, in this order, until the run fits.

    Batch 1 with accumulation instead, checkpointing, the cutoff at the longest row, liger, 4-bit weights, an 8-bit
    optimizer (for full training: 16-bit weights, then LoRA), and last of all the neighbour on the card.

    Args:
        config: the run config.
        estimate_: its estimate.
        limit: GiB that the run may use.
        longest_tokens: tokens of the longest row after the cutoff, where known.
        others_gib: what other processes hold of the card.

    Returns:
        Those that save something; empty where the run fits.
    """
    found: list[Remedy] = []
    now = estimate_
    for name, propose in _ORDER:
        if now.total_gib <= limit:
            return found
        proposal = propose(now, config, longest_tokens)
        if proposal is None:
            continue
        change, text = proposal
        changed = replace(config, given={**config.given, **change})
        try:
            after = estimate(changed, longest_tokens=longest_tokens)
        except ConfigError:  # LlamaFactory refuses the combination
            continue
        saves = now.total_gib - after.total_gib
        if saves >= _WORTH_GIB:
            found.append(Remedy(name, change, saves, after.total_gib, after.total_gib <= limit, text))
            config, now = changed, after
    if now.total_gib > limit and others_gib > 0:
        missing = now.total_gib - limit
        saves = min(missing, others_gib)
        text = texts.text("memory.cure.neighbour", missing=missing)
        found.append(Remedy("neighbour", {}, saves, now.total_gib, saves >= missing, text))
    return found


def _batch(now: Estimate, config: RunConfig, longest: int | None):
    setup = now.setup
    if setup.batch == 1:
        return None
    accumulation = setup.accumulation * setup.batch
    change = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": accumulation}
    return change, texts.text("memory.cure.batch", accumulation=accumulation)


def _evaluation(now: Estimate, config: RunConfig, longest: int | None):
    if now.line("evaluation") is None:
        return None
    return {"per_device_eval_batch_size": 1}, texts.text("memory.cure.evaluation")


def _checkpointing(now: Estimate, config: RunConfig, longest: int | None):
    if now.setup.checkpointing:
        return None
    change = {"disable_gradient_checkpointing": False}
    return change, texts.text("memory.cure.checkpointing")


def _cutoff(now: Estimate, config: RunConfig, longest: int | None):
    cutoff = config.given.get("cutoff_len")
    if longest is None or not isinstance(cutoff, int) or longest >= cutoff or not now.setup.packing:
        return None  # without packing the estimate takes the longest row already
    return {"cutoff_len": longest}, texts.text("memory.cure.cutoff", longest=longest)


def _liger(now: Estimate, config: RunConfig, longest: int | None):
    if now.setup.liger or now.setup.stage not in ("pt", "sft") or now.model_type not in _LIGER:
        return None
    return {"enable_liger_kernel": True}, texts.text("memory.cure.liger")


def _four_bit(now: Estimate, config: RunConfig, longest: int | None):
    setup = now.setup
    if setup.method != "lora" or setup.bits in (1, 2, 3, 4) or setup.shard in ("zero3", "fsdp", "fsdp_grad_op"):
        return None
    change = {"quantization_bit": 4, "quantization_method": "bnb"}
    return change, texts.text("memory.cure.four_bit")


def _small_optimizer(now: Estimate, config: RunConfig, longest: int | None):
    if not now.setup.optim.startswith("adamw") or "8bit" in now.setup.optim or now.setup.shard.startswith("zero"):
        return None
    return {"optim": "adamw_8bit"}, texts.text("memory.cure.optimizer")


def _pure_bf16(now: Estimate, config: RunConfig, longest: int | None):
    if not _full(now.setup):
        return None
    change = {"pure_bf16": True, "bf16": False, "fp16": False}
    return change, texts.text("memory.cure.bf16")


def _lora(now: Estimate, config: RunConfig, longest: int | None):
    if now.setup.method not in ("full", "freeze"):
        return None
    change = {"finetuning_type": "lora", "pure_bf16": False, "bf16": True}
    return change, texts.text("memory.cure.lora")


def _full(setup: Setup) -> bool:
    return setup.method in ("full", "freeze") and not setup.pure_bf16 and setup.shard in ("none", "zero1", "zero2")


_ORDER = (
    ("batch", _batch),
    ("evaluation batch", _evaluation),
    ("checkpointing", _checkpointing),
    ("cutoff", _cutoff),
    ("liger", _liger),
    ("4 bit", _four_bit),
    ("8-bit optimizer", _small_optimizer),
    ("pure_bf16", _pure_bf16),
    ("lora", _lora),
    ("4 bit", _four_bit),
)
