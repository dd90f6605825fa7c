"""Whether a batch's labels must be the tokens at their own positions, for the loss that this run takes."""

#: families of transformers' losses that move the labels by one themselves
_CAUSAL = ("ForCausalLM", "ForConditionalGeneration")
#: trainers that hand such labels to such a loss
_KNOWN = ("transformers.", "llamafactory.", "trl.")


def why_not_comparable(trainer, inputs) -> str:
    """The reason why labels cannot be compared with the ids at their positions; "" where they can."""
    if "shift_labels" in inputs:
        return "the trainer moves the labels itself (shift_labels)"
    model = _inner(trainer.model)
    kind = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return f"{kind} is an encoder-decoder: its labels are another sequence than its input"
    if getattr(model, "loss_type", None) not in _CAUSAL and "LMHead" not in kind:
        return f"{kind} is not known as a causal language model"
    return ""


def convention_is_known(trainer) -> bool:
    """Is the loss one that moves the labels itself? A trainer of one's own may expect labels that are moved already."""
    losses = [type(trainer).compute_loss, getattr(trainer, "compute_loss_func", None)]
    modules = [getattr(loss, "__module__", None) or type(loss).__module__ for loss in losses if loss is not None]
    return all(f"{module}.".startswith(_KNOWN) for module in modules)


def _inner(model):
    """The language model inside DDP, PEFT, a compiled module, a value head."""
    for _ in range(8):
        if hasattr(model, "get_base_model"):
            model = model.get_base_model()
            continue
        inside = next((vars(model)["_modules"].get(n) for n in _WRAPPERS if vars(model)["_modules"].get(n)), None)
        if inside is None:
            return model
        model = inside
    return model


_WRAPPERS = ("module", "_orig_mod", "pretrained_model")
