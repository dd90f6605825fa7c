"""Which class LlamaFactory loads a base model with, and the model's modules without its weights."""

from dataclasses import dataclass

from ..errors import ConfigError


@dataclass(frozen=True)
class Base:
    """Where the base model of a run comes from.

    Attributes:
        name: a folder or a hub name. revision, cache_dir: of the hub.
        trust_remote_code: the config's own word.
        adapters: adapters that LlamaFactory merges into it before it trains a new one.
        quantization: LlamaFactory's `quantization_bit`, `quantization_method`, `quantization_type`,
            `double_quantization`; empty where the run does not quantise.
    """

    name: str
    revision: str | None = None
    cache_dir: str | None = None
    trust_remote_code: bool = False
    adapters: tuple[str, ...] = ()
    quantization: dict | None = None

    def hub(self) -> dict:
        """Arguments for `from_pretrained`; the revision only where it is not the default (a folder has none)."""
        words = {"cache_dir": self.cache_dir, "trust_remote_code": self.trust_remote_code}
        return words if self.revision in (None, "main") else {**words, "revision": self.revision}


def auto_class(config: object):
    """The class that LlamaFactory 0.9.5 picks (`model/loader.py`, `load_model`): text with images, speech, or text."""
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForSeq2SeqLM,
        AutoModelForTextToWaveform,
    )

    for kind in (AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoModelForTextToWaveform):
        if type(config) in kind._model_mapping:
            return kind
    return AutoModelForCausalLM


def skeleton(base: Base):
    """The model with all its modules and shapes on torch's `meta` device: no weights are read, no memory is taken.

    Raises:
        ConfigError: there is no such model here, or its class cannot be built.
    """
    import torch
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(base.name, **base.hub())
        with torch.device("meta"):
            return auto_class(config).from_config(config, trust_remote_code=base.trust_remote_code)
    except Exception as error:  # transformers and the hub raise many kinds
        said = " ".join(str(error).split())[:200]
        raise ConfigError(f"{base.name}: its modules cannot be listed: {type(error).__name__}: {said}") from None
