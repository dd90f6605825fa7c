"""The tokenizer in a checkpoint: whole, and with no id that the model has no row for?"""

from pathlib import Path

from ..texts import text
from .files import Incomplete, read_json
from .part import BROKEN, DOUBTFUL, GOOD, MISSING, Part

_FILE = "tokenizer.json"
_ANY = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
#: read with it, where they are there (transformers 5.6.0): without one of them whole it does not load
_BESIDE = ("special_tokens_map.json", "added_tokens.json", "processor_config.json", "preprocessor_config.json")
_GENERATION = "generation_config.json"
#: without content: larger files are not read for a quick look
_QUICK_BYTES = 1 << 20


def check_tokenizer(folder: Path, rows: int | None, quick: bool = False) -> Part:
    """The tokenizer as a part. One that is missing is only said: whoever serves it needs that of the base model.

    Args:
        rows: of the model's embedding; None where not known.
        quick: do not read a large file.
    """
    there = [name for name in _ANY if (folder / name).exists()]
    if not there:
        why = text("checkpoint.tokenizer.none")
        return Part("tokenizer", MISSING, _FILE, why, needed=False)
    name = there[0]
    try:
        there += [name for name in _BESIDE if (folder / name).exists()]
        for name in (one for one in there if one.endswith(".json")):
            if quick and (folder / name).stat().st_size > _QUICK_BYTES:
                continue
            found = read_json(folder / name)
            highest = _highest_id(found) if name == _FILE else None
            if rows is not None and highest is not None and highest >= rows:
                why = text("checkpoint.tokenizer.other", name=name, highest=highest, rows=rows)
                return Part("tokenizer", BROKEN, name, why, needed=False)
    except Incomplete as reason:
        return Part("tokenizer", BROKEN, name, str(reason), needed=False)
    except OSError as error:
        return Part(
            "tokenizer",
            BROKEN,
            name,
            text("checkpoint.tokenizer.unreadable", name=name, error=error.strerror),
            needed=False,
        )
    return Part("tokenizer", GOOD, name, needed=False)


def check_generation(folder: Path) -> list[Part]:
    """A torn `generation_config.json`: the model loads, and its settings are the defaults without a word."""
    if not (folder / _GENERATION).exists():
        return []
    try:
        read_json(folder / _GENERATION)
    except Incomplete as reason:
        return [Part("generation_config", DOUBTFUL, _GENERATION, str(reason), needed=False)]
    return []


def _highest_id(found: object) -> int | None:
    """The highest id of a `tokenizer.json` (tokenizers library: `model.vocab` is a mapping, for Unigram a list)."""
    model = found.get("model") if isinstance(found, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = [one.get("id") for one in found.get("added_tokens") or [] if isinstance(one, dict)] if model else []
    if isinstance(vocabulary, dict):
        ids += vocabulary.values()
    elif isinstance(vocabulary, list):
        ids.append(len(vocabulary) - 1)
    return max((one for one in ids if isinstance(one, int)), default=None)
