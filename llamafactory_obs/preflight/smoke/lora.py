"""Is LoRA attached to everything that `lora_target` names? By the tensors of the checkpoint, against the base model."""

import re

from ... import texts
from ...checkpoint.base_model import skeleton
from ...checkpoint.files import Incomplete, read_json
from ...errors import ConfigError
from ..result import ERROR, FAIL, PASS, SKIPPED, Check
from ..run_config import parsed, quiet
from .evidence import Evidence

NAME = "lora_target"
#: peft's names in an adapter's file: `base_model.model.<module>.lora_A.weight`
_MODULE = re.compile(r"^(?:base_model\.model\.)?(.+?)\.(?:lora_A|lora_embedding_A|oft_R)\b")


def check_target(run: Evidence) -> Check:
    """Each name in `lora_target` has tensors in the adapter, in every layer where the base model has that module."""
    kind = run.finetuning_type
    if kind not in ("lora", "oft"):
        return Check(NAME, SKIPPED, None, None, texts.text("smoke.lora.none", kind=kind))
    try:
        wanted, nowhere = _wanted(run)
    except ConfigError as error:
        return Check(NAME, ERROR, None, None, str(error), texts.text("smoke.lora.check"))
    if nowhere:
        text = texts.text("smoke.lora.no_module", names=", ".join(sorted(nowhere)))
        text += texts.text("smoke.lora.leaves_out") if wanted else texts.text("smoke.lora.to_nothing")
        return Check(NAME, FAIL, 0, len(wanted), text, texts.text("smoke.lora.target"))
    missing_evidence = run.without_checkpoint(NAME)
    if missing_evidence is not None:
        return missing_evidence
    if run.proof.kind != "adapter":
        text = texts.text("smoke.lora.whole_model", name=run.checkpoint.name, kind=kind)
        return Check(NAME, FAIL, 0, len(wanted), text, texts.text("smoke.lora.check_type"))
    try:
        found = {m[1] for name in run.values.names if (m := _MODULE.match(name))}
    except Incomplete as error:
        return Check(NAME, ERROR, None, len(wanted), str(error))
    if not found:
        text = texts.text("smoke.lora.attached_to_nothing", file=run.proof.weights[0])
        return Check(NAME, FAIL, 0, len(wanted), text, texts.text("smoke.lora.check_saved"))
    return _judge(found, wanted)


def _judge(found: set[str], wanted: set[str]) -> Check:
    """Compare module by module, and say it by kind of module."""
    lacking, extra = wanted - found, found - wanted
    kinds = _by_kind(wanted)
    if lacking:
        said = [
            texts.text("smoke.lora.in_layers", kind=kind, count=count, of=kinds[kind])
            for kind, count in _by_kind(lacking).items()
        ]
        text = texts.text(
            "smoke.lora.not_attached", names=", ".join(said), found=len(found & wanted), wanted=len(wanted)
        )
        return Check(NAME, FAIL, len(found & wanted), len(wanted), text, texts.text("smoke.lora.with_target"))
    if extra:
        said = ", ".join(_by_kind(extra))
        text = texts.text("smoke.lora.extra", count=len(extra), said=said)
        return Check(NAME, FAIL, len(found), len(wanted), text, texts.text("smoke.lora.with_target"))
    each = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
    return Check(NAME, PASS, len(found), len(wanted), texts.text("smoke.lora.all", count=len(wanted), each=each))


def _by_kind(modules: set[str]) -> dict[str, int]:
    kinds = [module.rsplit(".", 1)[-1] for module in sorted(modules)]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _wanted(run: Evidence) -> tuple[set[str], set[str]]:
    """The base model's modules that must have an adapter, and the names in `lora_target` that fit none of them.

    The names are resolved by LlamaFactory's own functions (`find_all_linear_modules` for `all`, which leaves out the
    head; `find_expanded_modules` for `use_llama_pro`; `patch_target_modules` for models with towers) on the model
    without weights, and matched by peft's own rule.

    Raises:
        ConfigError: the model's modules cannot be listed, or LlamaFactory refuses the config.
    """
    model = skeleton(run.base)
    with parsed(run.config) as arguments:
        finetuning = arguments.finetuning
    with quiet():
        return _resolved(run, finetuning, model)


def _resolved(run: Evidence, finetuning, model) -> tuple[set[str], set[str]]:
    """See `_wanted`."""
    from llamafactory.model.model_utils.misc import find_all_linear_modules, find_expanded_modules
    from llamafactory.model.model_utils.visual import patch_target_modules
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    asked = list(finetuning.lora_target if run.finetuning_type == "lora" else finetuning.oft_target)
    if run.continues:  # its own targets count, LlamaFactory does not look at lora_target
        asked = _targets_of(run)
    names = asked
    if asked == ["all"]:
        names = find_all_linear_modules(model, finetuning.freeze_vision_tower)
    if finetuning.use_llama_pro:
        names = find_expanded_modules(model, names, finetuning.freeze_trainable_layers)
    names = patch_target_modules(model, finetuning, names)
    config = LoraConfig(target_modules=names)
    leaves = [name for name, module in model.named_modules() if not any(True for _ in module.children())]
    wanted = {name for name in leaves if check_target_module_exists(config, name)}
    nowhere = {one for one in asked if one != "all" and not any(name == one or _ends(name, one) for name in leaves)}
    return wanted, nowhere


def _ends(name: str, target: str) -> bool:
    return name.endswith(f".{target}") or name.rpartition(".")[0].endswith(f".{target}")


def _targets_of(run: Evidence) -> list[str]:
    try:
        found = read_json(run.checkpoint / "adapter_config.json").get("target_modules")
    except (Incomplete, AttributeError):
        found = None
    if not isinstance(found, list):
        raise ConfigError(texts.text("smoke.lora.continued"))
    return found
