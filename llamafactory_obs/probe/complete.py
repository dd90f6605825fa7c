"""Is a saved model folder complete? Proven from its content, never guessed from how long it has been quiet.

The order in which transformers writes `checkpoint-N` (5.6.0, `Trainer._save_checkpoint`): weights, their config, the
tokenizer, the optimizer's state, and `trainer_state.json` last; all in place. safetensors writes to `.tmpXXXXXX` and
renames; that file has its final size from the first moment on, and older versions sized the final file in advance.
A size that no longer changes therefore proves nothing, a header that matches the size does.
"""

import errno
import json
import os
import re
import stat
import time
import zipfile
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Literal

STATE = "trainer_state.json"
ADAPTER_CONFIG, CONFIG = "adapter_config.json", "config.json"

#: The limit of the safetensors library itself (`MAX_HEADER_SIZE`).
MAX_HEADER_BYTES = 100_000_000

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


class Incomplete(Exception):
    """The folder, or a file of it, is not whole; the text names it and says what is wrong."""


class Vanished(Incomplete):
    """Deleted while it was looked at."""


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

    kind, weights = _weights(folder, found)
    facts["kind"] = kind or "unsupported"
    if kind is None:
        raise Incomplete(_no_weights(listing))
    facts["weights"] = weights
    facts["files"] = tuple(sorted({*facts["files"], *weights, *(name for name in _INDEXES if name in found)}))
    if not at_rest:
        _refuse_mixture(found, weights, facts["saved_at"])
    check_files(folder, kind, weights)


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
            _check_zip(folder / name)
            tensors += 1
    if not tensors:
        raise Incomplete(f"{weights[0]} holds no tensor")


def read_header(file: Path) -> tuple[int, dict]:
    """The header of a safetensors file, checked against the file's size.

    The layout: 8 bytes little-endian length of the header, the header as JSON, the tensors' bytes without gaps.

    Returns:
        The offset of the first tensor's bytes, and the header: tensor name -> {"dtype", "shape", "data_offsets"}.

    Raises:
        Incomplete: the file is cut off, empty, only sized in advance, or no safetensors file.
    """
    name = file.name
    with _reading(name), open(file, "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        length = int.from_bytes(handle.read(8), "little")
        if size < 8:
            raise Incomplete(f"{name} has {size} bytes, too few for a header")
        if not 2 <= length <= MAX_HEADER_BYTES or 8 + length > size:
            raise Incomplete(f"{name}: a header of {length} bytes does not fit a file of {size} bytes")
        raw = handle.read(length)
    try:
        header = json.loads(raw)
        tensors = [value for key, value in header.items() if key != "__metadata__"]
        end = max([value["data_offsets"][1] for value in tensors], default=0)
        whole = 8 + length + int(end)
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise Incomplete(f"{name}: its header is no JSON of tensors") from None
    if whole != size:
        raise Incomplete(f"{name} has {size} bytes, its header says {whole}")
    return 8 + length, header


def read_step(folder: Path) -> int:
    """`global_step` of a folder's `trainer_state.json`.

    Raises:
        Incomplete: it is missing, torn or says no step.
    """
    state = read_json(folder / STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    if type(step) is not int:
        raise Incomplete(f"{STATE} says no global_step")
    return step


def read_json(file: Path):
    """One JSON file. The bare `NaN` that transformers writes into its state is taken.

    Raises:
        Incomplete: it is missing, empty or torn.
    """
    with _reading(file.name):
        raw = file.read_bytes()
    if not raw.strip():
        raise Incomplete(f"{file.name} is empty")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Incomplete(f"{file.name} is no whole JSON ({len(raw)} bytes)") from None


def _list(folder: Path) -> tuple[float, dict[str, os.stat_result]]:
    """The folder's mtime and what lies in it: relative name -> stat, links followed; one known subfolder is entered."""
    found = {}
    try:
        mtime = os.stat(folder).st_mtime
        for inside in ("", "additional_chat_templates/"):
            if not inside or inside[:-1] in found:
                for entry in os.scandir(folder / inside):
                    found[inside + entry.name] = entry.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise Vanished("vanished" if not folder.is_dir() else "a file vanished: it is being deleted") from None
    except OSError as error:
        raise _unreadable(str(folder), error) from None
    return mtime, found


class _reading:
    """Turns the errors of reading one file into Incomplete, with its name."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise Incomplete(f"{self.name} is missing") from None
        if isinstance(error, OSError):
            raise _unreadable(self.name, error) from None


def _unreadable(name: str, error: OSError) -> Incomplete:
    if error.errno == errno.ESTALE:  # NFS: deleted by another machine
        return Vanished(f"{name} vanished")
    return Incomplete(f"{name} cannot be read: {error.strerror or error}")


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
    return "no weights: neither adapter_model.* nor model.safetensors nor pytorch_model.bin"


def _refuse_mixture(found: dict, weights: tuple[str, ...], saved_at: float) -> None:
    newest = max(weights, key=lambda name: found[name].st_mtime)
    written = found[newest].st_mtime
    if written - saved_at > SAVE_ORDER_S and changed_within(QUIET_S, written):
        raise Incomplete(f"{newest} is newer than {STATE}: it is being saved anew, or was copied just now")


def _check_zip(file: Path) -> None:
    """A torch file is a zip archive; its central directory is written last."""
    with _reading(file.name), open(file, "rb") as handle:
        if not zipfile.is_zipfile(handle):
            raise Incomplete(f"{file.name} is no whole torch file: its directory is missing")
