"""Is a saved model folder complete? Proven from its content, never guessed from how long it has been quiet.

The order in which transformers writes `checkpoint-N` (5.6.0, `Trainer._save_checkpoint`): weights, their config, the
tokenizer, the optimizer's state, and `trainer_state.json` last; all in place. safetensors writes to `.tmpXXXXXX` and
renames; that file has its final size from the first moment on, and older versions sized the final file in advance.
A size that no longer changes therefore proves nothing, a header that matches the size does.
"""

import errno
import os
import re
import stat
import time
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Literal

from ..checkpoint.files import (
    ADAPTER_CONFIG,
    CONFIG,
    STATE,
    Incomplete,
    Vanished,
    check_torch_file,
    read_header,
    read_json,
    read_step,
    unreadable,
)

#: Weights newer than the state by more than this belong to a save that is under way over an older one (a resumed run
#: comes to the same step again). Above the coarsest clock of a file system, 2 s (FAT), so that a plain copy passes.
SAVE_ORDER_S = 2.0
#: Such a mixture is taken for a copy made file by file when nothing has changed for this long. The gaps in a real save
#: are shorter: while a shard is written its `.tmp` file is there.
QUIET_S = 60.0
#: A folder that lost or gained a file after its state, this recently, is being deleted (or moved) file by file.
UNREST_S, UNREST_AFTER_S = 1.0, 0.1

Kind = Literal["adapter", "full", "unsupported"]


def _any_of(*globs: str) -> re.Pattern:
    return re.compile("|".join(map(translate, globs)))


#: What inference may need besides the weights. JSON is taken with few exceptions: models bring their own.
_INFERENCE = _any_of(
    *("*.json", "*.jinja", "*.py", "*.tiktoken", "*.model", "merges.txt", "vocab.txt"),
    "additional_chat_templates/*.jinja",
)
_NOT_INFERENCE = _any_of(STATE, "*_results.json", "*.index.json")
#: What a signature covers besides: everything that decides whether the folder is complete.
_DECISIVE = _any_of(STATE, "*.index.json", "*.safetensors", "*model*.bin")
_TEMPORARY = _any_of(".tmp*", "*.tmp")

_FULL = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_INDEXES = tuple(name for name in _FULL if name.endswith(".index.json"))
_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
_SHARDS = _any_of("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin")
_FSDP, _DEEPSPEED = _any_of("pytorch_model_fsdp*", "*.distcp"), _any_of("global_step*")
#: how `Proof.why` begins where a folder has none at all
NO_WEIGHTS = "no weights"


@dataclass(frozen=True)
class Proof:
    """What is known about one folder.

    Attributes:
        complete: everything that inference needs is there and whole.
        why: where it is not complete, the file and what is wrong with it, in one line; else "".
        kind: a PEFT adapter, a full model, or a save that has no weights in the Hugging Face layout ("unsupported");
            None where it is too early to tell.
        weights: names of the weight files.
        files: names (relative, with "/") of all files that inference needs, the weights included.
        signature: a cheap identity of the content, see `glance`.
        step: the state's `global_step`.
        saved_at: mtime of the state, Unix seconds.
        changed_at: the newest mtime of the files in it, Unix seconds; 0 where there are none.
        folder_changed_at: mtime of the folder itself: when a file was last added to it, renamed or removed.
    """

    complete: bool
    why: str
    kind: Kind | None = None
    weights: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    signature: str = ""
    step: int | None = None
    saved_at: float = 0.0
    changed_at: float = 0.0
    folder_changed_at: float = 0.0


def prove(folder: Path, step: int | None, at_rest: bool = False) -> Proof:
    """Prove that a saved model is complete. Reads headers only, a few KB for each weight file; changes nothing.

    Args:
        folder: a `checkpoint-N`, or the output folder with the final model.
        step: N; None for the final model, whose step is whatever its state says.
        at_rest: the training has ended, nobody writes here: files younger than the state are no save under way.

    Returns:
        The proof. Nothing is raised: a folder that cannot be read is not complete, and `why` says so.
    """
    facts: dict = {}
    try:
        _prove(folder, step, facts, at_rest)
    except Incomplete as reason:
        return Proof(False, str(reason), **facts)
    return Proof(True, "", **facts)


def _prove(folder: Path, step: int | None, facts: dict, at_rest: bool) -> None:
    """Fill `facts` (the fields of a `Proof`) as far as they are known; raises Incomplete at the first flaw."""
    facts["folder_changed_at"], listing = _list(folder)
    found = _files(listing)
    facts["signature"] = _signature(found)
    facts["changed_at"] = max((entry.st_mtime for entry in found.values()), default=0.0)
    facts["files"] = tuple(sorted(name for name in found if _is_for_inference(name)))
    facts["saved_at"] = found[STATE].st_mtime if STATE in found else 0.0
    _refuse_temporary(found, facts["saved_at"])

    facts["step"] = read_step(folder)
    if step is not None and facts["step"] != step:
        raise Incomplete(f"{STATE} is of step {facts['step']}, not {step}")
    late = facts["folder_changed_at"] - facts["saved_at"] > UNREST_AFTER_S
    if step is not None and late and not at_rest and changed_within(UNREST_S, facts["folder_changed_at"]):
        raise Incomplete("files were added or removed after its state was written, just now")

    weights = _prove_weights(folder, listing, found, facts)
    if not at_rest:
        _refuse_mixture(found, weights, facts["saved_at"])
    check_files(folder, facts["kind"], weights)


def prove_weights(folder: Path) -> Proof:
    """Is there a whole model, whatever its state says? For serving alone; `prove` asks for more."""
    facts: dict = {}
    try:
        facts["folder_changed_at"], listing = _list(folder)
        found = _files(listing)
        facts["saved_at"] = found[STATE].st_mtime if STATE in found else 0.0
        facts["changed_at"] = max((entry.st_mtime for entry in found.values()), default=0.0)
        weights = _prove_weights(folder, listing, found, facts)
        check_files(folder, facts["kind"], weights)
    except Incomplete as reason:
        return Proof(False, str(reason), **facts)
    return Proof(True, "", **facts)


def _prove_weights(folder: Path, listing: dict, found: dict, facts: dict) -> tuple[str, ...]:
    """The weight files; fills `kind`, `weights` and `files`."""
    facts["files"] = tuple(sorted(name for name in found if _is_for_inference(name)))
    kind, weights = _weights(folder, found)
    facts["kind"] = kind or "unsupported"
    if kind is None:
        raise Incomplete(_no_weights(listing))
    facts["weights"] = weights
    facts["files"] = tuple(sorted({*facts["files"], *weights, *(name for name in _INDEXES if name in found)}))
    return weights


def glance(folder: Path) -> str:
    """A cheap identity of a folder's content: names, sizes, mtimes and inodes of its state, weights and configs.

    Returns:
        One line for each file; "" where the folder cannot be listed. Equal to the `signature` of a proof made now.
    """
    try:
        return _signature(_files(_list(folder)[1]))
    except Incomplete:
        return ""


def check_files(folder: Path, kind: Kind, weights: tuple[str, ...]) -> None:
    """Check the config and the headers of all weight files; for a checkpoint and for our copies of one.

    Raises:
        Incomplete: names the first file that is not whole, and what is wrong with it.
    """
    config = ADAPTER_CONFIG if kind == "adapter" else CONFIG
    if not isinstance(read_json(folder / config), dict):
        raise Incomplete(f"{config} is no JSON object")
    tensors = 0
    for name in weights:
        if name.endswith(".safetensors"):
            _, header = read_header(folder / name)
            tensors += len(header.keys() - {"__metadata__"})
        else:
            check_torch_file(folder / name)
            tensors += 1
    if not tensors:
        raise Incomplete(f"{weights[0]} holds no tensor")


def _list(folder: Path) -> tuple[float, dict[str, os.stat_result]]:
    """The folder's mtime and what lies in it: relative name -> stat, links followed; one known subfolder is entered."""
    found = {}
    try:
        mtime = os.stat(folder).st_mtime
        for inside in ("", "additional_chat_templates/"):
            if not inside or inside[:-1] in found:
                for entry in os.scandir(folder / inside):
                    if not _leads_nowhere(entry):
                        found[inside + entry.name] = entry.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise Vanished("vanished" if not folder.is_dir() else "a file vanished: it is being deleted") from None
    except OSError as error:
        raise unreadable(str(folder), error) from None
    return mtime, found


def _leads_nowhere(entry: os.DirEntry) -> bool:
    """A link to what is not there, or to itself: as good as missing."""
    if not entry.is_symlink():
        return False
    try:
        entry.stat()
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR)
    return False


def _is_for_inference(name: str) -> bool:
    return bool(_INFERENCE.match(name)) and not _NOT_INFERENCE.match(name)


def _files(listing: dict[str, os.stat_result]) -> dict[str, os.stat_result]:
    return {name: entry for name, entry in listing.items() if stat.S_ISREG(entry.st_mode)}


def _signature(found: dict[str, os.stat_result]) -> str:
    names = sorted(n for n in found if _is_for_inference(n) or _DECISIVE.match(n))
    return "\n".join(f"{n} {found[n].st_size} {found[n].st_mtime_ns} {found[n].st_ino}" for n in names)


def _refuse_temporary(found: dict[str, os.stat_result], saved_at: float) -> None:
    """A temporary file means that a save is under way, unless it is what an older, killed one left behind."""
    for name, entry in sorted(found.items()):
        if _TEMPORARY.match(name):
            left_behind = entry.st_mtime < saved_at and not changed_within(QUIET_S, entry.st_mtime)
            if not left_behind:
                raise Incomplete(f"{name}: a temporary file, a save is under way or was cut off")


def changed_within(seconds: float, mtime: float) -> bool:
    """Was it so recently? A time in the future is another machine's clock and says nothing."""
    return 0 <= time.time() - mtime < seconds


def _weights(folder: Path, found: dict) -> tuple[Kind | None, tuple[str, ...]]:
    """Kind and weight files, by the precedence in which PEFT and transformers look for them."""
    for name in _ADAPTER:
        if name in found:
            return "adapter", (name,)
    if ADAPTER_CONFIG in found:
        raise Incomplete(f"{_ADAPTER[0]} is missing")
    for name in _FULL:
        if name in found:
            return "full", _shards(folder / name, found) if name.endswith(".index.json") else (name,)
    shards = sorted(filter(_SHARDS.match, found))
    if shards:
        raise Incomplete(f"{shards[0]} is there, but the index of the shards is missing")
    return None, ()


def _shards(index: Path, found: dict) -> tuple[str, ...]:
    content = read_json(index)
    table = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
        raise Incomplete(f"{index.name} names no shards")
    names = sorted(set(table.values()))
    missing = [name for name in names if name not in found]
    if missing:
        raise Incomplete(f"{missing[0]} is missing ({len(missing)} of {len(names)} shards)")
    return tuple(names)


def _no_weights(listing: dict) -> str:
    if any(map(_FSDP.match, listing)):
        return "an FSDP sharded save; for probing set fsdp_state_dict_type: FULL_STATE_DICT"
    if any(map(_DEEPSPEED.match, listing)):
        return "DeepSpeed's shards only; for probing set stage3_gather_16bit_weights_on_model_save: true"
    return f"{NO_WEIGHTS}: neither adapter_model.* nor model.safetensors nor pytorch_model.bin"


def _refuse_mixture(found: dict, weights: tuple[str, ...], saved_at: float) -> None:
    newest = max(weights, key=lambda name: found[name].st_mtime)
    written = found[newest].st_mtime
    if written - saved_at > SAVE_ORDER_S and changed_within(QUIET_S, written):
        raise Incomplete(f"{newest} is newer than {STATE}: it is being saved anew, or was copied just now")
