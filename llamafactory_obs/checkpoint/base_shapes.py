"""A checkpoint's tensors against the base model's, by the headers of both: another model, rank, or a tensor too few.

Names are peft's: `base_model.model.<module>.lora_A.weight` of shape (rank, in), `lora_B.weight` of (out, rank), for a
weight `<module>.weight` of (out, in).
"""

import re

from .headers import Tensor

_LORA = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_(A|B)\.weight$")
_ROWS = re.compile(r"(?:^|\.)(embed_tokens|lm_head|wte|embed_out|word_embeddings|tok_embeddings)\.weight$")
#: a quantised base model keeps its weights packed, in other shapes
_PACKED = ("U8", "I8", "I32", "U32")
#: names agree so far, or the two are written in other ways and names prove nothing
_SAME_NAMES = 0.9


def vocabulary_rows(tensors: dict[str, Tensor]) -> int | None:
    """Rows of the embedding; None where it is under no name that is known."""
    for name, one in tensors.items():
        match = _ROWS.search(name)
        if match and match[1] not in ("lm_head", "embed_out") and one.dtype not in _PACKED and len(one.shape) == 2:
            return one.shape[0]
    return None


def lora_flaw(tensors: dict[str, Tensor], config: dict) -> str:
    """What is wrong with an adapter by its own config: no LoRA in it, or another rank than it says; "" for nothing."""
    if config.get("peft_type") != "LORA":
        return ""
    pairs = _pairs(tensors)
    if not pairs:
        return f"none of its {len(tensors)} tensors is one of LoRA's"
    for module, pair in pairs.items():
        if pair.keys() != {"A", "B"}:
            return f"{module} has lora_{''.join(pair)} and not the other half"
        (rank, _), (_, other) = pair["A"].shape, pair["B"].shape
        wanted = _rank(module, config)
        if rank != other:
            return f"{module}: lora_A has rank {rank}, lora_B {other}"
        if wanted is not None and rank != wanted:
            return f"{module} has rank {rank}, adapter_config.json says {wanted}"
    return ""


def adapter_flaw(tensors: dict[str, Tensor], base: dict[str, Tensor]) -> tuple[str, bool]:
    """What does not fit the base model.

    Returns:
        `(flaw, certain)`: "" for nothing. Not certain where not one name agrees: some models are saved under other
        names than they have in memory.
    """
    pairs = _pairs(tensors)
    if not base or not pairs:
        return "", True
    absent = [module for module in pairs if f"{module}.weight" not in base and f"{module}.qweight" not in base]
    absent = [module for module in absent if not _ROWS.search(f"{module}.weight")]  # a tied head is not saved
    if absent:
        flaw = f"{len(absent)} of its {len(pairs)} modules are not in the base model, e.g. {absent[0]}"
        return flaw, len(absent) < len(pairs)
    for module, pair in pairs.items():
        one = base.get(f"{module}.weight")
        if one is None or one.dtype in _PACKED or len(one.shape) != 2 or pair.keys() != {"A", "B"}:
            continue
        fits = (pair["B"].shape[0], pair["A"].shape[1])
        if fits not in (one.shape, one.shape[::-1]):  # GPT-2's Conv1D keeps (in, out)
            return f"{module} is for a weight of {list(fits)}, the base model's is {list(one.shape)}", True
    return "", True


def full_flaw(tensors: dict[str, Tensor], base: dict[str, Tensor]) -> str:
    """What a whole model lacks of its base, or has in another shape; "" where nothing, or where they are not alike."""
    shared = [name for name in base if name in tensors]
    if len(shared) < _SAME_NAMES * len(base):
        return ""
    lacking = [name for name in base if name not in tensors and not _ROWS.search(name)]  # the head may be tied
    if lacking:
        return f"{len(lacking)} of {len(base)} tensors of the base model are missing, e.g. {lacking[0]}"
    for name in shared:
        mine, theirs = tensors[name], base[name]
        grown = _ROWS.search(name) and mine.shape[1:] == theirs.shape[1:]  # resize_vocab
        if mine.shape != theirs.shape and theirs.dtype not in _PACKED and not grown:
            return f"{name} has shape {list(mine.shape)}, the base model's {list(theirs.shape)}"
    return ""


def _pairs(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Module -> its halves, `A` and `B`, of linear layers."""
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, one in tensors.items():
        match = _LORA.match(name)
        if match and len(one.shape) == 2:
            pairs.setdefault(match[1], {})[match[2]] = one
    return pairs


def _rank(module: str, config: dict) -> int | None:
    """The rank that a config gives a module, by peft's rule for patterns (`get_pattern_key`)."""
    pattern = config.get("rank_pattern")
    for key, rank in pattern.items() if isinstance(pattern, dict) else ():
        try:
            if re.match(rf"(.*\.)?({key})$", module):
                return rank
        except re.error:
            return None
    rank = config.get("r")
    return rank if isinstance(rank, int) else None
