"""What the folder around a checkpoint says of its run: the record's identity, the base model, who trained together."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..identity.model import find_folder
from ..probe.scan import Record
from ..record import schema
from ..record.reader import decode_run
from .base_model import Base
from .files import ADAPTER_CONFIG, Incomplete, read_json
from .headers import Tensor, base_tensors
from .part import Expected

#: LlamaFactory's optimizers that are rebuilt, or kept for each parameter, during a run
_OWN_STEPS = ("use_badam", "use_galore", "use_apollo")
_QUANTIZATION = ("quantization_bit", "quantization_method", "quantization_type", "double_quantization")
_RNG = re.compile(r"rng_state_(\d+)\.pth")


@dataclass
class Context:
    """The run around a checkpoint.

    Attributes:
        output_dir: where its checkpoints lie.
        record: `run.json`; {} where there is none.
        model: `--base`: a folder or a name that goes before all others; None for none.
        ended: the record says that its training has ended.
        tensors: of base models by folder, each read once.
    """

    output_dir: Path
    record: dict = field(default_factory=dict)
    model: str | None = None
    ended: bool = False
    tensors: dict[Path, dict[str, Tensor]] = field(default_factory=dict)

    def value(self, *path: str) -> object:
        """One value of the record; None where it is not there."""
        found: object = self.record
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def expected(self, folder: Path, step: int, arguments: dict, this_run: bool) -> Expected:
        """What must be in a checkpoint, by the record if it is of that run, else by the checkpoint itself."""
        ranks = self.value("world", "world_size") if this_run else None
        trainable = self.value("model", "parameters", "trainable") if this_run else None
        fp16 = (this_run and self.value("precision", "compute") == "fp16") or arguments.get("fp16") is True
        return Expected(
            step=step,
            fp16=fp16 or (folder / "scaler.pt").exists(),
            ranks=ranks if isinstance(ranks, int) and ranks > 0 else ranks_by_files(folder),
            trainable=trainable if isinstance(trainable, int) else None,
            own_steps=this_run and any(self.value("config", "given", key) in (True, "true") for key in _OWN_STEPS),
        )

    def base(self, folder: Path, this_run: bool) -> Base | None:
        """The base model of a checkpoint: `--base`, else the record's, else the one its adapter names."""
        given = self.value("config", "given") if this_run else None
        given = given if isinstance(given, dict) else {}
        name = self.model or given.get("model_name_or_path") or _named_by(folder)
        if not isinstance(name, str):
            return None
        adapters = given.get("adapter_name_or_path") or []
        adapters = [one.strip() for one in adapters.split(",")] if isinstance(adapters, str) else list(adapters)
        if not given.get("create_new_adapter"):
            adapters = adapters[:-1]  # the last one is trained on: it is what the checkpoint holds
        quantization = {key: given[key] for key in _QUANTIZATION if given.get(key) is not None}
        found = Base(name, adapters=tuple(adapters), quantization=quantization or None)
        if self.model is None:
            found = replace(found, revision=given.get("model_revision"), cache_dir=given.get("cache_dir"))
        return found

    def base_tensors(self, base: Base | None) -> dict[str, Tensor]:
        """Headers of the base model; {} where it is not on this machine or not in safetensors."""
        folder = base_folder(base)
        if folder is None:
            return {}
        if folder not in self.tensors:
            self.tensors[folder] = base_tensors(folder)
        return self.tensors[folder]


def read_context(output_dir: Path, model: str | None) -> Context:
    """Read the record beside the checkpoints, where there is one."""
    record = decode_run(output_dir / schema.FOLDER / schema.RUN)
    return Context(output_dir, record, model, ended=bool(Record(output_dir).read().ended))


def base_folder(base: Base | None) -> Path | None:
    """Where a base model lies on this machine; nothing is downloaded."""
    return None if base is None else find_folder(base.name, base.revision, None, base.cache_dir)


def ranks_by_files(folder: Path) -> int:
    """How many processes trained together: one writes `rng_state.pth`, several write `rng_state_<rank>.pth`."""
    ranks = [int(match[1]) for one in folder.glob("rng_state_*.pth") if (match := _RNG.fullmatch(one.name))]
    if not ranks or (folder / "rng_state.pth").exists():
        return 1
    return max(2, max(ranks) + 1)


def _named_by(folder: Path) -> str | None:
    try:
        return read_json(folder / ADAPTER_CONFIG).get("base_model_name_or_path")
    except (Incomplete, AttributeError):
        return None
