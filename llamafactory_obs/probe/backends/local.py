"""Generation in this process with transformers and peft.

LoRA adapters are swapped on one loaded base model; whole checkpoints are loaded and freed. On a GPU only where there is
room beside the training, else on the CPU.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..copies import Taken
from . import Generation, Refused, Unavailable
from .adapter_check import adapter_header, changes_nothing, check_tensors, read_config
from .device import pick_device

#: greedy, whatever the model's generation_config.json says
GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0}
#: initialisations of LoRA that leave the base model's weights as they are (peft 0.18, `LoraConfig.init_lora_weights`)
_KEEPS_BASE = (True, False, None, "gaussian", "eva", "orthogonal")


class LocalModels:
    """See `Backend`.

    Args:
        base: the base model, a path or a hub name; None where it is not known (adapters name theirs).
        device: "auto" | "cpu" | "cuda" | "cuda:1" ...
        why: why this backend was chosen.
        quantized: training quantises the base model; here it is not.
    """

    name = "local"

    def __init__(self, base: str | None, device: str = "auto", why: str = "", quantized: bool = False):
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()  # "Loading weights" between the blocks helps nobody

        self.why = why
        self.settings = dict(GREEDY)
        self._base_name, self._quantized = base, quantized
        self._held: tuple[str, object] | None = None  # the base model that adapters are swapped on
        self.device, reason = pick_device(device, base)
        self.where = f"transformers {transformers.__version__} on {self.device}" + (f" ({reason})" if reason else "")
        self._torch = torch

    @contextlib.contextmanager
    def open(self, taken: Taken | None) -> Iterator["LocalModel"]:
        """See `Backend.open`."""
        try:
            if taken is None:
                yield LocalModel(self._base(self._base_name), self.device, [])
            elif taken.kind == "adapter":
                with self._adapter(taken) as model:
                    yield model
            else:
                self._held = None  # room for one whole model at a time
                model = self._load(str(taken.path))
                yield LocalModel(model, self.device, [])
                del model
        except self._torch.OutOfMemoryError as error:
            raise Unavailable(f"no memory on {self.device}: {' '.join(str(error).split())[:160]}") from None
        finally:
            gc.collect()
            if self.device.startswith("cuda"):
                self._torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _adapter(self, taken: Taken) -> Iterator["LocalModel"]:
        from peft import PeftModel

        config = read_config(taken.path)
        if config.get("peft_type") == "LORA":
            check_tensors(taken.path)
        name = self._base_name or config.get("base_model_name_or_path")
        base, notes = self._base(name), []
        reusable = config.get("init_lora_weights") in _KEEPS_BASE
        if grow_vocabulary(base, taken.path):
            reusable = False
        if self._quantized:
            notes.append("training quantised the base model, here it is not: texts may differ slightly")
        if changes_nothing(taken.path):
            notes.append("the adapter changes nothing: its lora_B is all zero, it was saved before it learned")
        try:
            model = PeftModel.from_pretrained(base, str(taken.path), is_trainable=False)
        except self._torch.OutOfMemoryError:
            raise
        except Exception as error:
            self._held = None  # half an adapter may hang on it
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise Refused(
                f"peft cannot load it onto {name}: {said}", "is this the base model it was trained on?"
            ) from None
        try:
            _check_names(model, taken.path, name)
            yield LocalModel(model.eval(), self.device, notes)
        finally:
            base = model.unload()
            base.__dict__.pop("peft_config", None)  # else peft takes the next adapter for a second one
            self._held = (str(name), base) if reusable else None

    def _base(self, name: str | None):
        if name is None:
            raise Refused("the base model is not known", "name it with --model")
        if self._held is None or self._held[0] != str(name):
            self._held = None
            self._held = (str(name), self._load(str(name)))
        return self._held[1]

    def _load(self, name: str):
        from transformers import AutoModelForCausalLM, GenerationConfig

        if not Path(name).exists() and (name.startswith(("/", ".", "~")) or name.count("/") > 1):  # no name of a hub
            raise Refused(f"there is no model at {name} (from this folder)", "name the base model with --model")
        try:
            model, loading = AutoModelForCausalLM.from_pretrained(
                name, dtype="auto", device_map={"": self.device}, output_loading_info=True
            )
        except self._torch.OutOfMemoryError:
            raise
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise Refused(f"transformers cannot load {name}: {said}", "name the base model with --model") from None
        if loading["missing_keys"]:  # transformers fills them with random numbers and goes on
            missing = sorted(loading["missing_keys"])
            raise Refused(f"{name} lacks {len(missing)} of the model's weights, e.g. {missing[0]}")
        model.generation_config = GenerationConfig()  # its sampling defaults must not count
        return model.eval()

    def close(self) -> None:
        """See `Backend.close`."""
        self._held = None
        gc.collect()


class LocalModel:
    """See `Model`."""

    def __init__(self, model, device: str, notes: list[str]):
        self._model, self._device, self.notes = model, device, notes

    def generate(
        self, prompt: list[int], stop_ids: list[int], max_new_tokens: int, progress: Callable[[int], None]
    ) -> Generation:
        """See `Model.generate`."""
        import torch
        from transformers import GenerationConfig, StoppingCriteriaList

        start, first = time.perf_counter(), 0.0

        def watch(ids, scores, **kwargs):
            nonlocal first
            first = first or time.perf_counter() - start
            progress(ids.shape[1] - len(prompt))
            return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

        ids = torch.tensor([prompt], device=self._device)
        config = GenerationConfig(
            **GREEDY, max_new_tokens=max_new_tokens, eos_token_id=stop_ids, pad_token_id=stop_ids[0], use_cache=True
        )
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                stopping_criteria=StoppingCriteriaList([watch]),
            )
        made = out[0, len(prompt) :].tolist()
        ended = bool(made) and made[-1] in stop_ids
        return Generation(made, "stop" if ended else "length", time.perf_counter() - start, first)


def _check_names(model, folder: Path, base: str | None) -> None:
    """peft loads what fits and is silent about the rest: an adapter of another model would half work."""
    from peft import get_peft_model_state_dict

    saved = set(adapter_header(folder) or {})
    if not saved:
        return  # an adapter_model.bin
    wanted = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    extra = sorted(name for name in saved - wanted if ".lora_" in name)
    missing = sorted(name for name in wanted - saved if ".lora_" in name)
    if extra or missing:
        what = f"{len(extra)} of its tensors have no place in it" if extra else f"it lacks {len(missing)} tensors"
        example = (extra or missing)[0]
        cure = "name the base model it was trained on with --model"
        raise Refused(f"the adapter does not fit {base}: {what}, e.g. {example}", cure)


def grow_vocabulary(base, folder: Path) -> bool:
    """`resize_vocab: true` trains more tokens than the base model has rows for. True if it was resized."""
    names = ("embed_tokens.weight", "lm_head.weight")
    rows = [entry["shape"][0] for name, entry in (adapter_header(folder) or {}).items() if name.endswith(names)]
    have = base.get_input_embeddings().weight.shape[0]
    if not rows or rows[0] == have:
        return False
    base.resize_token_embeddings(rows[0])
    return True
