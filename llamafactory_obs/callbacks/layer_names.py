"""From a parameter's name to its layer and its module type, LoRA's A and B kept apart."""

import re

_LAYER = re.compile(r"(?:^|\.)(layers|h|blocks|layer|block)\.(\d+)\.")
_LORA = re.compile(r"\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(?:\.|$)")
_PEFT_LEVELS = re.compile(r"\.(modules_to_save\.[^.]+|original_module|base_layer)(?=\.)")
_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(base_model\.model|pretrained_model|module|_orig_mod|_fsdp_wrapped_module)\.")


def layers_of(names: list[str]) -> list[str]:
    """Each parameter's layer. Where a model has several towers, their path is kept: `vision_tower.encoder.layers.0`."""
    stems = {name[: m.start(1)] for name in map(_plain, names) if (m := _LAYER.search(name))}
    return [layer_of(name, keep_stem=len(stems) > 1) for name in names]


def layer_of(name: str, keep_stem: bool = False) -> str:
    """`model.layers.3.self_attn.q_proj.lora_A.default.weight` -> `layers.3.lora_A`; elsewhere the module's name."""
    name = _plain(name)
    layer = _LAYER.search(name)
    if layer is None:
        return _with_lora(_module(name), name)
    return _with_lora(f"{name[: layer.start(1)] if keep_stem else ''}{layer[1]}.{layer[2]}", name)


def module_of(name: str) -> str:
    """`model.layers.3.self_attn.q_proj.lora_A.default.weight` -> `q_proj.lora_A`."""
    name = _plain(name)
    return _with_lora(_module(name), name)


def _with_lora(base: str, name: str) -> str:
    lora = _LORA.search(name)
    return f"{base}.{lora[1]}" if lora else base


def _plain(name: str) -> str:
    return _PEFT_LEVELS.sub("", _WRAPPERS.sub("", name))


def _module(name: str) -> str:
    """The last name of the module that holds the parameter, LoRA's own levels left out."""
    lora = _LORA.search(name)
    path = name[: lora.start()] if lora else name.rpartition(".")[0] or name
    return path.rsplit(".", 1)[-1]
