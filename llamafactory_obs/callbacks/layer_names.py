"""From a parameter's name to its layer and its module type, LoRA's A and B kept apart."""

import re

_LAYER = re.compile(r"(?:^|\.)(layers|h|blocks|layer|block)\.(\d+)\.")
_LORA = re.compile(r"\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(?:\.|$)")
_PEFT_LEVELS = re.compile(r"\.(modules_to_save\.[^.]+|original_module|base_layer)(?=\.)")
_WRAPPERS = ("base_model.model.", "pretrained_model.", "module.", "_orig_mod.", "_fsdp_wrapped_module.")


def layer_of(name: str) -> str:
    """`model.layers.3.self_attn.q_proj.lora_A.default.weight` -> `layers.3.lora_A`; elsewhere the module's name."""
    name = _plain(name)
    layer = _LAYER.search(name)
    return _with_lora(f"{layer[1]}.{layer[2]}" if layer else _module(name), name)


def module_of(name: str) -> str:
    """`model.layers.3.self_attn.q_proj.lora_A.default.weight` -> `q_proj.lora_A`."""
    name = _plain(name)
    return _with_lora(_module(name), name)


def _with_lora(base: str, name: str) -> str:
    lora = _LORA.search(name)
    return f"{base}.{lora[1]}" if lora else base


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return _PEFT_LEVELS.sub("", name)


def _module(name: str) -> str:
    """The last name of the module that holds the parameter, LoRA's own levels left out."""
    lora = _LORA.search(name)
    path = name[: lora.start()] if lora else name.rpartition(".")[0] or name
    return path.rsplit(".", 1)[-1]
