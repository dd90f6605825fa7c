"""What both renderers share: the checkpoint's tokenizer."""

import hashlib
from pathlib import Path

from ...identity.model import TOKENIZER_FILES


def load_tokenizer(*folders: Path | str | None):
    """The tokenizer of the first place that has one: the checkpoint's own, else the base model's.

    Raises:
        OSError, ValueError: no place has one; transformers' own words.
    """
    from transformers import AutoTokenizer

    places = [place for place in folders if place is not None]
    for place in places:
        if not Path(place).is_dir() or any(Path(place).glob("tokenizer*")):
            return AutoTokenizer.from_pretrained(place)
    raise OSError(f"no tokenizer in {' or '.join(map(str, places))}")


def special_tokens(tokenizer) -> list[str]:
    """All special tokens as text, added ones included."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return list(dict.fromkeys([*tokenizer.all_special_tokens, *added]))


def keep_all(tokenizer, ids: list[int]) -> str:
    """The text of token ids as the model made them: special tokens kept, no space cleaned up."""
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def fingerprint(folder: Path) -> str:
    """SHA-256 of all files of a folder that can change how a prompt is rendered or where an answer ends."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if TOKENIZER_FILES.fullmatch(file.name) or file.name in ("generation_config.json", "config.json"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
