"""The weights of a checkpoint as a part: whole, alike in all shards, fit for the base model, finite, not wiped out."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from .. import texts
from ..probe.complete import NO_WEIGHTS, Proof, prove_weights
from .base_model import Base
from .base_shapes import adapter_flaw, full_flaw, lora_flaw, vocabulary_rows
from .context import Context, base_folder
from .files import ADAPTER_CONFIG, CONFIG, Incomplete, check_torch_file, file_named, read_json
from .headers import Tensor, check_index, read_tensors, stale_shards
from .part import BROKEN, GOOD, MISSING, Expected, Part
from .resume_state import layout_of, sharded
from .tensors import read_values, zero_in

_FSDP_WHOLE, _FSDP_SHARDS = "pytorch_model_fsdp.bin", "pytorch_model_fsdp_0"
_VALUE_HEAD = "value_head.safetensors"


@dataclass
class Weights:
    """What was found.

    Attributes:
        part: good, missing or broken.
        proof: of the files that a server needs.
        tensors: their headers.
        kind: adapter | full | fsdp | deepspeed | none.
        what: in a few words.
        rows: of the embedding, or of the base model's; None where not known.
        doubt: what speaks against it without proving it; decided by loading.
        notes: what is worth knowing and does no harm.
        beside: numbers of a value head, which is trained with the weights and saved in a file of its own.
    """

    part: Part
    proof: Proof
    tensors: dict[str, Tensor] = field(default_factory=dict)
    kind: str = "none"
    what: str = ""
    rows: int | None = None
    doubt: str = ""
    notes: list[str] = field(default_factory=list)
    beside: int = 0

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The least and the most parameters that an optimizer can have been training."""
        if not self.tensors or any(not name.endswith(".safetensors") for name in self.proof.weights):
            return None, None
        lora = sum(one.elements for name, one in self.tensors.items() if ".lora_" in name)
        return lora or None, sum(one.elements for one in self.tensors.values()) + self.beside


def check_weights(folder: Path, context: Context, base: Base | None, expected: Expected, quick: bool) -> Weights:
    """Look at the weights. Nothing is raised for a file that is missing or broken.

    Args:
        quick: headers and sizes only; no tensor is read.

    Raises:
        OSError: the folder cannot be listed.
    """
    found = Weights(Part("weights", GOOD, ""), prove_weights(folder))
    proof, layout = found.proof, layout_of(folder)
    if proof.kind == "unsupported" and layout != "plain":
        _shards_only(found, folder, layout, expected)
        return found
    if proof.kind is None:  # not even which files there should be
        found.kind = "adapter" if (folder / ADAPTER_CONFIG).exists() else "full"
    elif proof.kind != "unsupported":
        found.kind = proof.kind
    if not proof.complete:
        if found.kind == "none" and proof.why.startswith(NO_WEIGHTS):
            found.part = Part("weights", MISSING, "", proof.why)
            return found
        file = next((name for name in (*proof.weights, ADAPTER_CONFIG, CONFIG) if name in proof.why), "")
        found.part = Part("weights", BROKEN, file or file_named(proof.why), proof.why)
        return found
    try:
        why = _judge(found, folder, context, base, quick)
    except Incomplete as reason:
        why = str(reason)
    if why:
        names = [*proof.weights, *proof.files, _FSDP_WHOLE, _VALUE_HEAD]
        file = next((name for name in names if re.search(rf"\b{re.escape(name)}\b", why)), proof.weights[0])
        found.part = Part(
            "weights", BROKEN, file, why if file in why else texts.text("checkpoint.weights.why", file=file, why=why)
        )
    else:
        found.part = Part("weights", GOOD, proof.weights[0])
    return found


def read_instead(folder: Path, kind: str) -> list[Part]:
    """What a resume reads in place of an adapter: a whole model beside it, or adapters in folders of their own. The
    adapter itself then begins anew, and nothing is said (transformers 5.6.0, `Trainer._load_from_checkpoint`)."""
    if kind != "adapter" or layout_of(folder) == "deepspeed":
        return []
    files = ["pytorch_model.bin", "model.safetensors"]
    inner = sorted(one.name for one in folder.iterdir() if one.is_dir())
    files += [f"{name}/adapter_model.{ending}" for name in inner for ending in ("bin", "safetensors")]
    found = next((name for name in files if (folder / name).is_file()), None)
    if found is None:
        return []
    return [Part("adapter", BROKEN, found, texts.text("checkpoint.resume.read", file=found))]


def _shards_only(found: Weights, folder: Path, layout: str, expected: Expected) -> None:
    """Weights that only the training itself can load."""
    found.kind = layout
    found.notes.append(found.proof.why)
    if layout == "deepspeed":
        found.what = texts.text("checkpoint.weights.deepspeed")  # judged with the optimizer: they lie in one folder
        found.part = Part("weights", GOOD, "latest")
        return
    found.what = texts.text("checkpoint.weights.fsdp")
    if (folder / _FSDP_SHARDS).exists():
        found.part = sharded(folder, "weights", _FSDP_SHARDS, expected)
        return
    try:
        check_torch_file(folder / _FSDP_WHOLE)
        found.part = Part("weights", GOOD, _FSDP_WHOLE)
    except Incomplete as reason:
        found.part = Part("weights", BROKEN, _FSDP_WHOLE, str(reason))


def _judge(found: Weights, folder: Path, context: Context, base: Base | None, quick: bool) -> str:
    """What is wrong with the weights; "" for nothing. Raises Incomplete, too."""
    proof = found.proof
    found.tensors = tensors = read_tensors(folder, proof.weights)
    index = "model.safetensors.index.json"
    if index in proof.files and "model.safetensors" not in proof.weights:
        check_index(folder, index, tensors)
    found.what = _what(found.kind, tensors, len(proof.weights))
    stale = stale_shards(folder, proof.weights)
    if stale:
        found.notes.append(texts.text("checkpoint.weights.stale", count=len(stale), name=stale[0]))
    for name in (_FSDP_WHOLE, "value_head.bin"):
        if (folder / name).exists():
            check_torch_file(folder / name)
    if (folder / _VALUE_HEAD).exists():
        found.beside = sum(one.elements for one in read_tensors(folder, (_VALUE_HEAD,)).values())
    held = context.base_tensors(base) if tensors else {}
    found.rows = vocabulary_rows(tensors) or vocabulary_rows(held)
    if tensors and found.kind == "adapter":
        config = read_json(folder / ADAPTER_CONFIG)
        why = lora_flaw(tensors, config)
        if why:
            return why
        found.what = f"LoRA r {config.get('r')}" if config.get("peft_type") == "LORA" else str(config.get("peft_type"))
        why, certain = adapter_flaw(tensors, held)
        why = f"{why} ({base.name})" if why else ""
        if why and certain:
            return why
        found.doubt = why
    elif tensors:
        why = _other_rows(tensors, read_json(folder / CONFIG)) or full_flaw(tensors, held)
        if why:
            return why
    return "" if quick else _values(found, folder, base)


def _other_rows(tensors: dict[str, Tensor], config: dict) -> str:
    """Has the embedding as many rows as the model's own config says?"""
    rows = vocabulary_rows(tensors)
    text = config.get("text_config")
    said = config.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
    if rows is None or not isinstance(said, int) or rows == said:
        return ""
    return texts.text("checkpoint.weights.embedding", rows=rows, config=CONFIG, said=said)


def _values(found: Weights, folder: Path, base: Base | None) -> str:
    """What is wrong with the numbers in the weights."""
    values = read_values(folder, found.proof)
    if values.nonfinite:
        file, bad = next(iter(values.nonfinite.items()))
        count = sum(map(len, values.nonfinite.values()))
        return texts.text("checkpoint.weights.nan", file=file, count=count, of=len(values.names), tensor=bad[0])
    zero = [(file, name) for file, names in values.zero.items() for name in names]
    if zero and found.kind == "full" and len(zero) < values.matrices:
        there = base_folder(base)
        begun = zero_in(there, [name for _, name in zero]) if there else {name for _, name in zero}
        zero = [(file, name) for file, name in zero if name not in begun]
    if zero:
        file, name = zero[0]
        return texts.text("checkpoint.weights.zeros", file=file, count=len(zero), of=values.matrices, tensor=name)
    if values.lora_b and values.lora_b == values.lora_b_zero:
        return texts.text("checkpoint.weights.lora", count=values.lora_b)
    return ""


def _what(kind: str, tensors: dict[str, Tensor], files: int) -> str:
    elements = sum(one.elements for one in tensors.values())
    units = ((1e9, "B"), (1e6, "M"), (1e3, "k"), (1, ""))
    size = next((f"{elements / unit:.3g}{word}" for unit, word in units if elements >= unit), "0")
    types = sorted({one.dtype.lower() for one in tensors.values()})
    shards = texts.text("checkpoint.weights.shards", files=files) if files > 1 else ""
    return f"{kind}, {size} {'/'.join(types[:2])}{shards}" if tensors else kind
