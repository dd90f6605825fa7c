"""Will vLLM load the adapter that this run saves? The rules are the probe's own (`probe/backends/adapter_check.py`)."""

from pathlib import Path

from ... import texts
from ...identity.model import find_folder
from ...probe.backends import Refused
from ...probe.backends.adapter_check import check, needed_limit, needed_rank, read_config
from ..result import ERROR, FAIL, PASS, SKIPPED, WARN, Check
from .effective import Effective

NAME = "adapter_served"
#: vLLM's --max-lora-rank where nobody sets it (vLLM 0.32, `vllm/config/lora.py`)
DEFAULT_MAX_RANK = 16
#: layers of which vLLM serves an adapter for some models only (its `embedding_modules`)
_EMBEDDINGS = ("lm_head", "embed_tokens", "embed_out", "wte", "output_layer", "word_embeddings")


def check_adapter(run: Effective, endpoint: str | None) -> list[Check]:
    """`adapter_served`: a fail where probes go through vLLM, else a warning; nothing where all is well."""
    method = run.get("finetuning_type")
    grave = FAIL if run.probes_through_vllm(endpoint) else WARN
    if method in ("full", "freeze"):
        text = texts.text("ahead.adapter.whole", method=method)
        status = WARN if grave == FAIL else SKIPPED
        return [Check(NAME, status, method, "lora", text, "probe: {backend: local}" if status == WARN else "")]
    adapter: dict = {}
    try:
        adapter = saved_config(run)
        check(adapter)
        _other_base(run)
    except Refused as error:
        cure = error.cure or texts.text("ahead.adapter.local_or_merge")
        text = error.why if error.why.startswith("vLLM") else texts.text("ahead.adapter.refused", why=error.why)
        return [Check(NAME, grave, adapter_word(run), "plain LoRA", text + _besides(run, adapter), cure)]
    except LookupError as error:
        return [Check(NAME, ERROR, None, "plain LoRA", texts.text("ahead.adapter.not_judged", why=error.args[0]))]
    return [_rank(needed_rank(adapter)), *_embeddings(adapter, grave)]


def _besides(run: Effective, adapter: dict) -> str:
    """What else is in the way of an adapter that is refused."""
    rank, text = adapter.get("r") if adapter.get("peft_type") == "LORA" else None, ""
    if run.get("pissa_init") and run.get("pissa_convert"):
        text = texts.text("ahead.adapter.pissa")
    if isinstance(rank, int) and rank > DEFAULT_MAX_RANK and (limit := needed_limit(rank)):
        text += texts.text("ahead.adapter.rank_too", rank=rank, limit=limit)
    return text


def adapter_word(run: Effective) -> str:
    """The kind of adapter, in one word."""
    for key, word in (("use_dora", "DoRA"), ("pissa_init", "PiSSA"), ("resize_vocab", "LoRA and embeddings")):
        if run.get(key):
            return word
    return str(run.get("finetuning_type"))


def saved_config(run: Effective) -> dict:
    """The keys of the `adapter_config.json` that the run will save, as far as vLLM's rules read them.

    LlamaFactory 0.9.5, `model/adapter.py`: the last of `adapter_name_or_path` goes on being trained and keeps its own
    config, unless `create_new_adapter` is set.

    Raises:
        Refused: its config cannot be read.
        LookupError: it is not on this machine.
    """
    given = run.get("adapter_name_or_path")
    if given and not run.get("create_new_adapter"):
        folder = find_folder(given[-1], None, None, run.get("cache_dir"))
        if folder is None:
            raise LookupError(texts.text("ahead.adapter.not_here", path=given[-1]))
        below = run.get("adapter_folder")
        return read_config(folder / below if below else folder)
    saved = list(run.get("additional_target") or [])
    if run.get("resize_vocab") and not saved:
        saved = ["embed_tokens", "lm_head"]
    start = f"pissa_niter_{run.get('pissa_iter')}" if run.get("pissa_init") else True
    return {
        "peft_type": "OFT" if run.get("finetuning_type") == "oft" else "LORA",
        "r": run.get("lora_rank"),
        "use_dora": run.get("use_dora"),
        "modules_to_save": saved,
        "init_lora_weights": start,
        "target_modules": list(run.get("lora_target") or []),
    }


def _other_base(run: Effective) -> None:
    """Earlier adapters are merged into the base in memory: what is saved belongs to a model that nobody serves."""
    given = run.get("adapter_name_or_path") or []
    merged = given if run.get("create_new_adapter") else given[:-1]
    if merged:
        names = ", ".join(Path(one).name for one in merged)
        cure = texts.text("ahead.adapter.merge_first")
        raise Refused(texts.text("ahead.adapter.merges", names=names), cure)


def _rank(rank: int) -> Check:
    limit = needed_limit(rank)
    if rank <= DEFAULT_MAX_RANK:
        return Check(
            NAME, PASS, rank, DEFAULT_MAX_RANK, texts.text("ahead.adapter.rank_fits", rank=rank, limit=DEFAULT_MAX_RANK)
        )
    text = texts.text("ahead.adapter.rank_refused", rank=rank, limit=limit)
    text += texts.text("ahead.adapter.rank_default", limit=DEFAULT_MAX_RANK)
    return Check(NAME, WARN, rank, DEFAULT_MAX_RANK, text, f"vllm serve ... --enable-lora --max-lora-rank {limit}")


def _embeddings(adapter: dict, grave: str) -> list[Check]:
    targets = adapter.get("target_modules") or []
    words = targets.replace("|", ",").split(",") if isinstance(targets, str) else targets
    found = sorted({word.strip("^$.*() ").rsplit(".", 1)[-1] for word in words} & set(_EMBEDDINGS))
    if not found:
        return []
    text = texts.text("ahead.adapter.embeddings", names=", ".join(found))
    return [Check("adapter_target", grave, found, [], text, texts.text("ahead.adapter.all_linear"))]
