"""What comes and goes in a step: activations, logits and loss, temporary buffers, and the moment when it is most."""

from dataclasses import dataclass, replace

from .formula import layer_bytes, shape_of, stored_bytes
from .live import ACTIVATIONS, COPIES, GRADIENTS, LOGITS
from .parameters import Built
from .setup import Setup
from .trace import Traced, trace


@dataclass(frozen=True)
class Moment:
    """The highest moment.

    Attributes:
        lines: `(name, bytes, formula, numbers)`; with the gradients they add up to the moment's bytes.
        moment: when it is.
        moving: bytes that come and go, gradients included.
        traced: the count it rests on; None where the model could not be run.
        complete: False where something that may be the highest moment could not be counted; `notes` say what.
    """

    lines: list[tuple[str, int, str, dict]]
    moment: str
    moving: int
    traced: Traced | None
    complete: bool
    notes: tuple[str, ...] = ()


#: the moment where nothing is known of the activations
UNKNOWN = "unknown"

#: traces of this process: the remedies and the comparison with a record ask for the same ones again
_TRACED: dict[tuple, Traced] = {}


def moments(built: Built, setup: Setup, gradients: int, step_bytes: int) -> Moment:
    """Compare forward and backward, the optimizer step and the evaluation.

    Args:
        gradients: bytes of the line `gradients`.
        step_bytes: what the optimizer's step needs for a moment.
    """
    notes: list[str] = []
    traced = _try(built, setup, notes, evaluation=False)
    lines, moment = _training(built, setup, traced, gradients, notes)
    training = sum(value for _, value, _, _ in lines)
    complete = moment != UNKNOWN
    if step_bytes > training and moment != UNKNOWN:
        moment = "optimizer step"
        text = f"the optimizer's buffers, {step_bytes / 2**30:.2f} GiB, less the activations, which are gone by then"
        lines.append(("optimizer step", step_bytes - training, text, {}))
        training = step_bytes
    if setup.eval_batch and moment != UNKNOWN:
        held = _try(built, setup, notes, evaluation=True)
        more = held.peak_bytes - training - gradients if held else 0
        # as many rows as in training need less: nothing is kept for a backward pass. But with liger only training
        # does without logits
        complete = held is not None or (setup.eval_batch <= setup.rows and not setup.liger)
        if more > 0:
            moment = "evaluation"
            text = f"a batch of {setup.eval_batch} rows, {held.peak_bytes / 2**30:.2f} GiB, above the training step"
            lines.append(("evaluation", more, text, {"eval_batch": setup.eval_batch}))
            training += more
    return Moment(lines, moment, training + gradients, traced, complete, tuple(notes))


def _try(built: Built, setup: Setup, notes: list[str], *, evaluation: bool) -> Traced | None:
    alike = replace(
        setup, optim="", accumulation=min(setup.accumulation, 2), eval_batch=evaluation and setup.eval_batch
    )
    key = (evaluation, alike, built.key, built.parameters)
    try:
        if key not in _TRACED:
            _TRACED[key] = trace(built, setup, evaluation=evaluation)
        return _TRACED[key]
    except Exception as error:  # a custom kernel or data-dependent code: fake tensors have no values
        what = "evaluation" if evaluation else "forward and backward"
        notes.append(
            f"not counted: {what} cannot be traced ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
        )
        return None


def _training(built: Built, setup: Setup, traced: Traced | None, gradients: int, notes: list[str]):
    liger = _liger(built, setup) if setup.liger and setup.stage in ("pt", "sft") else 0
    if traced is None:
        return _by_hand(built, setup, liger, notes)
    peak = dict(traced.peak)
    # gradients that do not exist yet at this moment are counted in their own line: what is freed meanwhile makes room
    room = gradients - min(gradients, peak[GRADIENTS])
    beyond = peak[GRADIENTS] - min(gradients, peak[GRADIENTS])
    activations = peak[ACTIVATIONS] + beyond
    named = {"activations": activations, "logits and loss": peak[LOGITS] + liger, "weight copies": peak[COPIES]}
    full = sum(named.values())
    for name in named:  # the latest freed first
        cut = min(room, named[name])
        named[name] -= cut
        room -= cut
    tokens = setup.rows * setup.length
    vocabulary = built.model.get_input_embeddings().weight.shape[0]
    texts = {
        "activations": _activation_text(built, setup, traced),
        "logits and loss": f"{tokens:,} tokens x {vocabulary:,} words x {_per_cell(peak[LOGITS], tokens, vocabulary)}"
        + (f"; liger's fused loss keeps {liger / 2**30:.2f} GiB" if liger else ""),
        "weight copies": f"{_word(setup)} copies of fp32 weights by autocast",
    }
    if full > sum(named.values()):
        texts["activations"] += "; less what is freed before the last gradient is there"
    kept = sum(size for kind, size in traced.stored.items() if kind != GRADIENTS)
    numbers = {"tokens": tokens, "stored_bytes": kept, "peak_bytes": traced.peak_bytes}
    lines = [(name, value, texts[name], numbers if name == "activations" else {}) for name, value in named.items()]
    return lines, traced.moment


def _activation_text(built: Built, setup: Setup, traced: Traced) -> str:
    tokens = setup.rows * setup.length
    layers = getattr(built.text, "num_hidden_layers", 0)
    kept = traced.stored[ACTIVATIONS]
    how = "inputs of the checkpointed layers" if setup.checkpointing else "all that backward needs"
    each = f"{layers} layers x {traced.per_layer / 2**20:.1f} MiB" if traced.per_layer else f"{kept / 2**30:.2f} GiB"
    return f"{each} ({how}, {tokens:,} tokens); peak in {traced.moment}"


def _per_cell(size: int, tokens: int, vocabulary: int) -> str:
    return f"{size / (tokens * vocabulary):.1f} B"


def _word(setup: Setup) -> str:
    return setup.precision if setup.precision != "none" else "16-bit"


def _liger(built: Built, setup: Setup) -> int:
    """liger's fused linear cross entropy: one chunk of logits, the gradient of its input, and that of a trained head.

    Chunks are of next_power_of_2(tokens / ceil(vocabulary / hidden)) tokens (`ops/fused_linear_cross_entropy.py`).
    """
    tokens, hidden = setup.rows * setup.length, built.text.hidden_size
    vocabulary = built.model.get_input_embeddings().weight.shape[0]
    parts = -(-vocabulary // hidden)
    chunk = 1 << max(0, (-(-tokens // parts) - 1).bit_length())
    size = min(chunk, tokens) * vocabulary * (2 + 4) + tokens * hidden * 2
    head = built.model.get_output_embeddings()
    trained = head is not None and any(p.requires_grad for p in head.parameters(recurse=True))
    return size + (vocabulary * hidden * 4 if trained else 0)


def _by_hand(built: Built, setup: Setup, liger: int, notes: list[str]):
    """Where the model cannot be run: the formula of a dense decoder, if it is one."""
    shape = shape_of(built)
    tokens = setup.rows * setup.length
    if shape is None:
        notes.append("not modelled: the activations of this architecture; the total leaves them out")
        return [], UNKNOWN
    full = setup.method != "lora"
    stored, words = stored_bytes(shape, setup, full=full)
    layer = tokens * sum(layer_bytes(shape, full=full).values()) if setup.checkpointing else 0
    logits = liger or tokens * shape.vocabulary * 12
    moment = "backward of the head and the last layer"
    lines = [
        ("activations", round(stored + max(0, layer - logits)), words + " + one layer made again", {"tokens": tokens}),
        ("logits and loss", round(logits), f"{tokens:,} tokens x {shape.vocabulary:,} words x 12 B", {}),
    ]
    return lines, moment
