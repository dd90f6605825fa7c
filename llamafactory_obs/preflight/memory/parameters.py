"""The model of a config on the meta device, with LlamaFactory's adapter on it: shapes and dtypes, no weight loaded."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ...errors import ConfigError
from ..run_config import Arguments, quiet
from .setup import Setup


@dataclass(frozen=True)
class Parameter:
    """One tensor that is counted once, also where two modules share it.

    Attributes:
        quantised: its module is one that `quantization_bit` replaces.
        embedding: it belongs to an `nn.Embedding`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    trainable: bool
    quantised: bool
    embedding: bool

    @property
    def count(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def bytes(self) -> int:
        """As it stands, not quantised."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class Built:
    """The model as LlamaFactory would train it.

    Attributes:
        model: on the meta device.
        text: the language model's own config.
        stored: the dtype of the checkpoint.
        quantised: names of the linear modules that `quantization_bit` replaces.
        key: model config and LlamaFactory's model and finetuning arguments as text: equal where the models are equal.
    """

    model: torch.nn.Module = field(repr=False)
    text: object = field(repr=False)
    stored: torch.dtype
    parameters: tuple[Parameter, ...] = field(repr=False)
    quantised: frozenset[str] = field(repr=False)
    key: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All parameters, adapter included."""
        return sum(p.count for p in self.parameters)

    @property
    def trainable(self) -> int:
        return sum(p.count for p in self.parameters if p.trainable)


def build(arguments: Arguments, setup: Setup) -> Built:
    """Build it in the order of LlamaFactory's `load_model`: config, model, vocabulary, checkpointing, adapter.

    Raises:
        ConfigError: the model's config (or tokenizer, or adapter's config) is not on this machine, or LlamaFactory
            or PEFT refuse the combination; their own words.
    """
    from llamafactory.model.adapter import init_adapter
    from llamafactory.model.model_utils.checkpointing import prepare_model_for_training
    from llamafactory.model.model_utils.moe import configure_moe
    from llamafactory.model.model_utils.rope import configure_rope
    from llamafactory.model.model_utils.visual import configure_visual_model

    model_args, finetuning = arguments.model, arguments.finetuning
    notes: list[str] = []
    config = load_config(model_args)
    stored = _stored_dtype(config, model_args.model_name_or_path, notes)
    finetuning.pure_bf16 = setup.pure_bf16  # `parsed` leaves the machine's keys out
    finetuning.pissa_init = False  # the same shapes; the decomposition needs weights
    model_args.compute_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(setup.precision, torch.float32)
    notes += _forget_quantisation(config)
    with quiet(), torch.device("meta"):
        try:
            configure_rope(config, model_args)
            configure_moe(config, model_args, True)
            configure_visual_model(config)
            model = _model_class(config).from_config(
                config, dtype=stored, trust_remote_code=model_args.trust_remote_code, **_attention(config, setup)
            )
            if getattr(config, "model_type", None) in ("qwen2_5_omni", "qwen3_omni_moe"):
                model = model.thinker
            _resize_vocabulary(model, model_args)
            quantised = _quantised_modules(model) if setup.bits else frozenset()
            prepare_model_for_training(model, model_args)
            if model_args.adapter_name_or_path and not finetuning.create_new_adapter:
                model = _existing_adapter(model, model_args)
            else:
                model_args.adapter_name_or_path = None  # merged adapters change no shape
                model = init_adapter(config, model, model_args, finetuning, True)
        except ConfigError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"the model of {model_args.model_name_or_path} cannot be built: {text[:300]}") from error
    model.train()
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    key = f"{config.to_json_string()} {model_args} {finetuning}"
    return Built(model, text, stored, tuple(_parameters(model, quantised)), quantised, key, tuple(notes))


def load_config(model_args):
    """The model's own config, from its folder or the local cache; the network is not asked.

    Raises:
        ConfigError: it is not there.
    """
    from transformers import AutoConfig

    name = model_args.model_name_or_path
    try:
        with quiet():
            return AutoConfig.from_pretrained(
                name,
                trust_remote_code=model_args.trust_remote_code,
                cache_dir=model_args.cache_dir,
                revision=model_args.model_revision,
                local_files_only=True,
            )
    except Exception as error:
        if not Path(name).is_dir():
            raise ConfigError(
                f"the config of {name} is not on this machine: `hf download {name} config.json`,"
                " or give a local folder as model_name_or_path"
            ) from None
        if not (Path(name) / "config.json").is_file():
            raise ConfigError(f"{name} holds no config.json; give the model's own folder or hub name") from None
        text = " ".join(str(error).split())
        raise ConfigError(f"{name}/config.json cannot be used: {text[:300]}") from None


def _model_class(config):
    """As in LlamaFactory's `load_model`."""
    import transformers

    for name in ("ImageTextToText", "Seq2SeqLM", "TextToWaveform"):
        found = getattr(transformers, f"AutoModelFor{name}", None)
        if found is not None and type(config) in found._model_mapping:
            return found
    return transformers.AutoModelForCausalLM


def _attention(config, setup: Setup) -> dict:
    """`flash_attn: disabled` is eager, and so is gemma2 without flash-attn; the rest is what transformers prefers."""
    from transformers.utils import is_flash_attn_2_available

    eager = setup.attention == "disabled"
    if getattr(config, "model_type", None) == "gemma2" and setup.attention in ("auto", "fa2"):
        eager = not is_flash_attn_2_available()
    return {"attn_implementation": "eager"} if eager else {}


def _stored_dtype(config, name: str, notes: list[str]) -> torch.dtype:
    """The dtype that LlamaFactory loads (`torch_dtype="auto"`): the config's, else that of the first stored tensor."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for one in (config, text):
        dtype = getattr(one, "dtype", None)
        dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if isinstance(dtype, torch.dtype):
            return dtype
    words = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    for file in sorted(Path(name).glob("*.safetensors")) if Path(name).is_dir() else []:
        try:
            with open(file, "rb") as handle:
                header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
        except (OSError, ValueError):
            break
        for key, entry in header.items():
            if key != "__metadata__" and entry.get("dtype") in words:
                return words[entry["dtype"]]
    notes.append("the model's config names no dtype: bf16 is assumed")
    return torch.bfloat16


def _forget_quantisation(config) -> list[str]:
    """A model that is stored quantised is built plain; its weights are then counted by the bits of its config."""
    found = getattr(config, "quantization_config", None)
    if not found:
        return []
    found = found if isinstance(found, dict) else found.to_dict()
    method = str(found.get("quant_method", "")).lower()
    del config.quantization_config
    if method in ("mxfp4", "fp8"):
        return [f"{method} weights are dequantised by LlamaFactory at loading"]
    return [f"not modelled: weights stored as {method or 'quantised'}; they are counted as if they were not quantised"]


def _resize_vocabulary(model, model_args) -> None:
    """As LlamaFactory's `resize_embedding_layer`: grows to the tokenizer's size, in steps of 64."""
    if not (model_args.resize_vocab or model_args.add_tokens or model_args.add_special_tokens):
        return
    from llamafactory.model.patcher import patch_tokenizer
    from transformers import AutoTokenizer

    name = model_args.model_name_or_path
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name,
            trust_remote_code=model_args.trust_remote_code,
            cache_dir=model_args.cache_dir,
            revision=model_args.model_revision,
            local_files_only=True,
        )
    except Exception:
        raise ConfigError(f"resize_vocab needs the tokenizer of {name}, which is not on this machine") from None
    patch_tokenizer(tokenizer, model_args)
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)


def _quantised_modules(model) -> frozenset[str]:
    """The linear modules that bitsandbytes replaces: all but the head and what shares its weights."""
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = get_keys_to_not_convert(model)
    linear = (name for name, module in model.named_modules() if type(module) is torch.nn.Linear)
    return frozenset(name for name in linear if should_convert_module(name, kept))


def _existing_adapter(model, model_args):
    """The adapter that training goes on with: its shapes by its own config."""
    from peft import PeftConfig, get_peft_model

    folder = model_args.adapter_name_or_path[-1]
    try:
        adapter = PeftConfig.from_pretrained(folder, subfolder=model_args.adapter_folder, local_files_only=True)
    except Exception:
        raise ConfigError(f"adapter_name_or_path: {folder} holds no adapter_config.json on this machine") from None
    adapter.inference_mode = False
    if hasattr(adapter, "init_lora_weights"):
        adapter.init_lora_weights = True  # the same shapes; other ways need the weights
    model = get_peft_model(model, adapter)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)
    return model


def _parameters(model, quantised: frozenset[str]):
    """Each tensor once; names are those of the trained model, `base_layer` of PEFT included."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        plain = prefix.removeprefix("base_model.model.").removesuffix(".base_layer")
        for name, tensor in module.named_parameters(recurse=False):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            yield Parameter(
                name=f"{prefix}.{name}".lstrip("."),
                shape=tuple(tensor.shape),
                dtype=tensor.dtype,
                trainable=tensor.requires_grad,
                quantised=name == "weight" and plain in quantised and not tensor.requires_grad,
                embedding=isinstance(module, torch.nn.Embedding),
            )
