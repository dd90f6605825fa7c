"""Sharded saves, FSDP (torch's distributed checkpoint) and DeepSpeed: is every shard there, and as long as it must?

Layouts: torch 2 (`distributed/checkpoint/filesystem.py`: `.metadata` is a pickle of which only strings and numbers are
read; one `__<rank>_<n>.distcp` for each rank and thread, items one behind the other), DeepSpeed's engine (`latest`,
`global_stepN/*_optim_states.pt`, `*_model_states.pt`).
"""

import re
from pathlib import Path

from .files import Incomplete, check_torch_file, open_file, reading
from .pickle_words import words

_METADATA = ".metadata"
_MAX_METADATA = 256 << 20
_RANK_OF_SHARD = re.compile(r"__(\d+)_\d+\.distcp")
_RANK_OF_ZERO = re.compile(r".*zero_pp_rank_(\d+)_.*optim_states\.pt")


def check_dcp(place: Path) -> int:
    """One folder of a distributed checkpoint.

    Returns:
        Ranks that wrote to it.

    Raises:
        Incomplete: the table is missing (it is written last), or a shard is missing or shorter than the table says.
    """
    name = f"{place.name}/{_METADATA}"
    with reading(name), open_file(place / _METADATA) as handle:
        raw = handle.read(_MAX_METADATA)
    try:
        ends = _ends(list(words(raw)))
    except ValueError:
        raise Incomplete(f"{name} is cut off ({len(raw)} bytes)") from None
    if not ends:
        raise Incomplete(f"{name} names no shard")
    for shard, end in sorted(ends.items()):
        said = f"{place.name}/{shard}"
        if "/" in shard:
            raise Incomplete(f"{name} names a shard elsewhere: {shard}")
        with reading(said), open_file(place / shard) as handle:
            size = handle.seek(0, 2)
        if size < end:
            raise Incomplete(f"{said} has {size} bytes, {_METADATA} says {end}")
    return len({match[1] for shard in ends if (match := _RANK_OF_SHARD.fullmatch(shard))})


def _ends(found: list) -> dict[str, int]:
    """Shard -> its last byte, from the table's `_StorageInfo(relative_path, offset, length)`."""
    ends: dict[str, int] = {}
    for at, word in enumerate(found[:-5]):
        if word == "relative_path" and found[at + 2] == "offset" and found[at + 4] == "length":
            shard, offset, length = found[at + 1], found[at + 3], found[at + 5]
            if shard.__class__ is str and offset.__class__ is int and length.__class__ is int:
                ends[shard] = max(ends.get(shard, 0), offset + length)
    return ends


def check_deepspeed(folder: Path) -> tuple[str, int]:
    """DeepSpeed's part of a checkpoint: `latest` names the folder with each rank's states.

    Returns:
        The tag, and how many ranks' optimizer states there are.

    Raises:
        FileNotFoundError: there is none, or `latest` names one that is not there; the text says which.
        Incomplete: a file of it is not whole, or one rank's is missing.
    """
    try:
        with open_file(folder / "latest") as handle:
            tag = handle.read(4096).decode("utf-8").strip()
    except (OSError, ValueError):
        raise FileNotFoundError("`latest` is missing: DeepSpeed does not find its own state") from None
    place = folder / tag
    if not tag or "/" in tag or not place.is_dir():
        raise FileNotFoundError(f"`latest` names {tag!r}, which is not there")
    optim = sorted(one.name for one in place.glob("*optim_states.pt"))
    models = sorted(one.name for one in place.glob("*model_states.pt"))
    for name in (*optim, *models):
        try:
            check_torch_file(place / name)
        except Incomplete as reason:
            raise Incomplete(f"{tag}/{reason}") from None
    if not models:
        raise Incomplete(f"{tag} holds the optimizer state of {len(optim)} ranks and no model states")
    ranks = {int(match[1]) for name in optim if (match := _RANK_OF_ZERO.fullmatch(name))}
    lacking = sorted(set(range(max(ranks, default=-1) + 1)) - ranks)
    if lacking:
        raise Incomplete(f"{tag} lacks the optimizer state of rank {lacking[0]}")
    return tag, len(optim)
