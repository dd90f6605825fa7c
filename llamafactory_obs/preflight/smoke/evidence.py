"""What a finished smoke run left behind, each thing read once: its record, its checkpoint and what that holds."""

import functools
import math
from dataclasses import dataclass
from pathlib import Path

from ...checkpoint.base_model import Base
from ...checkpoint.tensors import Values, read_values
from ...identity.model import find_folder
from ...probe.complete import Proof, prove
from ...record import reader
from ...texts import text
from ..rehearsal.folder import read_marker
from ..result import SKIPPED, Check
from ..run_config import RunConfig


@dataclass
class Evidence:
    """One smoke run.

    Attributes:
        config: the run config that it is to vouch for.
        folder: its output folder.
        record: its record.
        step: how many steps it was to make, and the number of its checkpoint.
    """

    config: RunConfig
    folder: Path
    record: reader.RunRecord
    step: int

    @functools.cached_property
    def marker(self) -> dict:
        """What `--run-smoke` wrote of its run; empty for a folder that was trained by hand."""
        return read_marker(self.folder) or {}

    def column(self, name: str) -> dict[int, float]:
        """Step -> number of one column, steps without a number left out."""
        values = self.record.steps.get(name) or []
        return {s: v for s, v in zip(self.record.steps["step"], values, strict=False) if isinstance(v, (int, float))}

    def finite(self, name: str) -> dict[int, float]:
        """One column without what is not finite."""
        return {step: value for step, value in self.column(name).items() if math.isfinite(value)}

    def events(self, *kinds: str) -> list[dict]:
        """Events of these kinds, of the newest start of training only."""
        last = self._segment
        return [one for one in self.record.events if one.get("kind") in kinds and one.get("segment", 0) == last]

    @functools.cached_property
    def _segment(self) -> int:
        return max((one.get("segment", 0) for one in self.record.events), default=0)

    def identity(self, *path: str) -> object:
        """One value of `run.json`; None where it is not there."""
        value: object = self.record.run
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @functools.cached_property
    def last_step(self) -> int:
        """The last optimizer step on record."""
        return max((s for s in self.record.steps.get("step") or [] if s), default=0)

    @functools.cached_property
    def on_cpu(self) -> bool:
        """Did it train without a GPU? Told by what the `vram` callback recorded, else by the machine's cards."""
        if self.column("system/peak_reserved_gib"):
            return False
        return bool(self.column("system/rss_gib")) or self.identity("hardware", "gpu_count") == 0

    @functools.cached_property
    def fp16(self) -> bool:
        """Was a loss scaler in use?"""
        return self.identity("precision", "compute") == "fp16" or truth(self.config.given.get("fp16"))

    @functools.cached_property
    def finetuning_type(self) -> str:
        """lora (LlamaFactory's default) | oft | freeze | full."""
        return str(self.config.given.get("finetuning_type", "lora"))

    @functools.cached_property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.step}"

    @functools.cached_property
    def proof(self) -> Proof:
        """Is the checkpoint complete?"""
        ended = bool(self.events("end", "crash", "oom", "interrupted"))
        return prove(self.checkpoint, self.step, at_rest=ended)

    @functools.cached_property
    def values(self) -> Values:
        """What its weights hold.

        Raises:
            Incomplete: a weight file cannot be read.
        """
        return read_values(self.checkpoint, self.proof)

    @functools.cached_property
    def adapters(self) -> list[str]:
        """Adapters that the config begins with."""
        found = self.config.given.get("adapter_name_or_path") or []
        return [one.strip() for one in found.split(",")] if isinstance(found, str) else list(found)

    @functools.cached_property
    def continues(self) -> bool:
        """Does it go on with an adapter that was trained before (LlamaFactory's way without `create_new_adapter`)?"""
        return bool(self.adapters) and not truth(self.config.given.get("create_new_adapter"))

    @functools.cached_property
    def base(self) -> Base:
        """The base model, by the config."""
        given = self.config.given
        merged = self.adapters[:-1] if self.continues else self.adapters
        keys = ("quantization_bit", "quantization_method", "quantization_type", "double_quantization")
        return Base(
            name=str(given.get("model_name_or_path")),
            revision=given.get("model_revision"),
            cache_dir=given.get("cache_dir"),
            trust_remote_code=truth(given.get("trust_remote_code")),
            adapters=tuple(merged),
            quantization={key: given[key] for key in keys if given.get(key) is not None} or None,
        )

    @functools.cached_property
    def base_folder(self) -> Path | None:
        """Where the base model lies on this machine; None where it does not."""
        return find_folder(self.base.name, self.base.revision, None, self.base.cache_dir)

    def without_checkpoint(self, name: str) -> Check | None:
        """The answer of a check that needs the checkpoint's weights, where another one has failed for want of them."""
        if not self.checkpoint.is_dir():
            return Check(name, SKIPPED, None, None, text("smoke.evidence.none", name=self.checkpoint.name))
        if not self.proof.complete:
            return Check(name, SKIPPED, None, None, text("smoke.evidence.not_whole", name=self.checkpoint.name))
        return None


def truth(value: object) -> bool:
    """A YAML word that means yes, as LlamaFactory's parser (transformers' `HfArgumentParser`) takes it."""
    return value is True or str(value).lower() in ("true", "yes", "1", "t", "y")


def read_evidence(config: RunConfig, folder: Path, step: int) -> Evidence:
    """Read a smoke run's folder.

    Raises:
        ConfigError: there is no record.
    """
    return Evidence(config, folder, reader.load_record(folder), step)
