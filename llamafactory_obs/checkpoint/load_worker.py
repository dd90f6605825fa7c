"""Loads checkpoints and makes one forward pass with each: `python -m ...load_worker`, one JSON object a line.

A line on stdin is a request (`loading.Loader`), a line on stdout its answer (`loading.Loaded`), in their order. Each
checkpoint is loaded in a child of its own, forked once the imports are done: a crash, a leak or a full memory stays
there, and only the first one waits for the imports.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

from .base_model import Base, auto_class

#: a few tokens: what is asked is whether numbers come out, not which
_TOKENS = 8
#: how many names of a list are passed on
_NAMES = 20
_LIBRARIES = (
    "torch.",
    "transformers.",
    "peft.",
    "accelerate.",
    "safetensors.",
    "huggingface_hub.",
    "llamafactory_obs.",
)


class Failed(Exception):
    """Loading ended at `stage`."""

    def __init__(self, stage: str, why: str):
        super().__init__(why)
        self.stage = stage


def main(request: dict) -> dict:
    """The answer to one request; nothing is raised for a model that does not load."""
    answer = {"loaded": False, "stage": "", "why": "", "missing": [], "unexpected": [], "notes": []}
    started = time.perf_counter()
    try:
        answer |= _try(request, answer)
    except Failed as failure:
        answer |= {"stage": failure.stage, "why": str(failure)}
    return answer | {"seconds": round(time.perf_counter() - started, 2)}


def _try(request: dict, answer: dict) -> dict:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, device = Path(request["folder"]), request["device"]
    base = Base(**request["base"])
    if request["kind"] == "adapter":
        model = _with_adapter(folder, base, device, answer)
    else:
        hub = {"trust_remote_code": base.trust_remote_code}
        model, found = _load("checkpoint", str(folder), hub, device)
        answer["missing"] = sorted(found["missing_keys"])[:_NAMES]
        answer["unexpected"] = sorted(found["unexpected_keys"])[:_NAMES]
        answer["missing_count"], answer["unexpected_count"] = len(found["missing_keys"]), len(found["unexpected_keys"])
    return {"loaded": True, "device": device, **_forward(model, device)}


def _with_adapter(folder: Path, base: Base, device: str, answer: dict):
    from peft import PeftModel, get_peft_model_state_dict

    from ..probe.backends.adapter_check import adapter_header
    from ..probe.backends.local import grow_vocabulary

    hub = base.hub()
    quantized = _quantization(base, device, answer)
    model, found = _load("base", base.name, hub | quantized, device)
    if found["missing_keys"]:  # transformers fills them with random numbers and goes on
        raise Failed(
            "base", f"{base.name} lacks {len(found['missing_keys'])} weights, e.g. {min(found['missing_keys'])}"
        )
    try:
        for adapter in base.adapters:
            model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    except Exception as error:
        raise _failed("base", f"the adapter {adapter} does not load", error) from None
    grow_vocabulary(model, folder)
    try:
        model = PeftModel.from_pretrained(model, str(folder), is_trainable=False)
    except Exception as error:
        raise _failed("checkpoint", f"peft cannot load it onto {base.name}", error) from None
    saved = set(adapter_header(folder) or {})
    if saved:  # peft loads what fits and is silent about the rest
        wanted = set(get_peft_model_state_dict(model, save_embedding_layers=False))
        missing = sorted(name for name in wanted - saved if ".lora_" in name)
        extra = sorted(name for name in saved - wanted if ".lora_" in name)
        answer |= {"missing": missing[:_NAMES], "unexpected": extra[:_NAMES]}
        answer |= {"missing_count": len(missing), "unexpected_count": len(extra)}
    return model


def _quantization(base: Base, device: str, answer: dict) -> dict:
    """Arguments that load the base as the training did, where that can be done here; else it is said."""
    import torch

    asked = base.quantization or {}
    bits, method = asked.get("quantization_bit"), asked.get("quantization_method") or "bnb"
    if not bits:
        return {}
    bnb = method == "bnb" and bits in (4, 8) and device.startswith("cuda")
    if not bnb or importlib.util.find_spec("bitsandbytes") is None:
        answer["notes"].append(f"training quantised the base model to {bits} bit ({method}), here it is not")
        return {}
    from transformers import BitsAndBytesConfig

    if bits == 8:
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16,
        bnb_4bit_use_double_quant=bool(asked.get("double_quantization", True)),
        bnb_4bit_quant_type=asked.get("quantization_type") or "nf4",
    )
    return {"quantization_config": config}


def _load(stage: str, name: str, words: dict, device: str):
    from transformers import AutoConfig

    try:
        hub = {key: words[key] for key in ("cache_dir", "trust_remote_code", "revision") if key in words}
        kind = auto_class(AutoConfig.from_pretrained(name, **hub))
        return kind.from_pretrained(name, dtype="auto", device_map={"": device}, output_loading_info=True, **words)
    except Exception as error:
        raise _failed(stage, f"transformers cannot load {name}", error) from None


def _forward(model, device: str) -> dict:
    import torch

    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(1, _TOKENS + 1, device=device).remainder(vocabulary).unsqueeze(0)
    try:
        with torch.inference_mode():
            logits = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    except Exception as error:
        raise _failed("forward", "the forward pass fails", error) from None
    bad = int((~torch.isfinite(logits)).sum())
    spread = None if bad else float(logits.max() - logits.min())
    return {"nonfinite": bad, "logits": logits.numel(), "spread": spread, "shape": list(logits.shape)}


def _failed(stage: str, what: str, error: Exception) -> Failed:
    """No memory on the device says nothing of the checkpoint."""
    import torch

    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return Failed("process" if isinstance(error, torch.OutOfMemoryError) else stage, f"{what}: {said}")


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    for name in ("torch", "transformers", "peft"):
        importlib.import_module(name)
    for line in iter(requests.readline, ""):
        request = json.loads(line)
        answer = _in_child(request, request.pop("limit_s"))
        imported = answer.pop("imported", [])
        print(json.dumps(answer), file=answers, flush=True)
        _import(imported)


def _import(names: list[str]) -> None:
    """Import what a child needed, so that the next one has it."""
    for name in names:
        if name not in sys.modules and name.startswith(_LIBRARIES):
            with contextlib.suppress(Exception):  # some can only be imported in another order
                importlib.import_module(name)


def _in_child(request: dict, limit_s: float) -> dict:
    """`main` in a forked child; what becomes of a child that gives no answer is an answer, too."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        before = set(sys.modules)
        answer = main(request)
        with os.fdopen(send, "w") as out:
            json.dump(answer | {"imported": [name for name in list(sys.modules) if name not in before]}, out)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        late = not select.select([pipe], [], [], limit_s)[0]
        if late:
            os.kill(child, signal.SIGKILL)
        raw = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        return json.loads(raw)
    except ValueError:
        pass
    why = f"the process was killed by signal {-code} (9: out of memory)"
    if late:
        why = f"not loaded within {limit_s:.0f} s"
    elif code >= 0:
        why = f"the process ended with {code} and no answer"
    return {"loaded": False, "stage": "process", "why": why}


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints to stderr
    serve(sys.stdin, out)
