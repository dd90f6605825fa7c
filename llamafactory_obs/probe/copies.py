"""Private copies: what inference needs of a checkpoint is taken before rotation deletes it under our hands.

The checkpoint is only read. (Rotation deletes by the folder's mtime: a file written into it would change the order.)
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..checkpoint.files import ADAPTER_CONFIG, CONFIG, Incomplete, read_header, read_json
from .complete import Kind, Proof, check_files, prove
from .scan import FINAL, step_of

#: Below this a copy costs less than it is worth to think about; only larger weight files are hard-linked.
LINK_BYTES = 256 << 20
#: Left free beside room for one more checkpoint of the same size: our copies must never end the training.
SPARE_BYTES = 256 << 20
BLOCK = 4 << 20
"""Bytes read at a time."""

_PARTIAL = ".partial-"
#: Config keys that do not change what the model computes but may differ between two saves of one model.
_NO_CONTENT = ("use_cache", "transformers_version", "_name_or_path")


@dataclass(frozen=True)
class Taken:
    """A private copy of one saved model.

    Attributes:
        name: "checkpoint-20", or "final" for the model in the output folder.
        step: its global step.
        kind: "adapter" or "full".
        path: the folder of the copy.
        content: SHA-256, hex, over the tensors and the config; equal for equal models, however they were written.
        signature: that of the checkpoint's proof when it was taken.
        weights: names of the weight files.
        linked: hard-linked weight files -> [bytes, mtime in ns] when they were taken.
    """

    name: str
    step: int
    kind: Kind
    path: Path
    content: str
    signature: str
    weights: tuple[str, ...] = ()
    linked: dict[str, list[int]] = field(default_factory=dict)

    def row(self) -> dict:
        """As JSON; `from_row` reads it back."""
        return {**asdict(self), "path": str(self.path)}

    @classmethod
    def from_row(cls, row: dict) -> "Taken":
        fields = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "path": Path(row["path"]), "weights": tuple(row["weights"])})


class Lost(Exception):
    """The checkpoint changed or vanished before it was taken; look again."""


class Blocked(Exception):
    """It cannot be taken now, through no fault of its own (no room, no permission); try again later. One line."""


def take(folder: Path, proof: Proof, into: Path, hard_links: bool) -> Taken:
    """Copy what inference needs into a folder of its own, unique to the step and the content.

    All files are opened first and proven to be those of `proof`; from then on a deletion cannot take them away from
    us. The copy gets its name only when it is whole. Files get mode 0644 and folders 0755, because safetensors saves
    with 0600 and a server that runs as another user could not read them.

    Args:
        folder: a `checkpoint-N`, or the output folder for the final model.
        proof: its proof of completeness.
        into: the folder of all copies; made where missing.
        hard_links: link weight files above 256 MiB instead of copying them, where the file system can. A linked file
            is the checkpoint's own: its mode stays, and an old writer that overwrites it in place changes the copy;
            `intact` notices.

    Raises:
        Lost: it changed or vanished.
        Blocked: no room on the disk, or no permission.
    """
    name = FINAL if _is_final(folder, proof) else folder.name
    partial = into / f"{_PARTIAL}{name}-{uuid.uuid4().hex[:8]}"
    try:
        _make_folder(into)
        _check_room(folder, proof, into, hard_links)
        _make_folder(partial)
        _copy(folder, proof, partial, hard_links)
        check_files(partial, proof.kind, proof.weights)
        content = content_of(partial, proof.kind, proof.weights)
        path = into / f"{name}-{content[:12]}" if name != FINAL else into / f"{name}-{proof.step}-{content[:12]}"
        _put(partial, path, proof, content)
        linked = _links(path, proof.weights)
    except Incomplete as reason:
        raise Lost(f"it changed while it was copied: {reason}") from None
    except FileNotFoundError:
        raise Lost("it vanished while it was copied") from None
    except OSError as error:
        if error.errno == errno.ESTALE:
            raise Lost("it vanished while it was copied") from None
        raise Blocked(_reason(error, into)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Taken(name, proof.step, proof.kind, path, content, proof.signature, proof.weights, linked)


def discard(taken: Taken) -> None:
    """Remove a copy. Nothing happens where it is gone already; the checkpoint itself is never touched."""
    shutil.rmtree(taken.path, ignore_errors=True)


def intact(taken: Taken, thorough: bool = False) -> str:
    """Why a copy can no longer be trusted; "" where it can.

    Args:
        thorough: read everything and compare the content. Otherwise headers, sizes and the mtimes of linked files.
    """
    try:
        check_files(taken.path, taken.kind, taken.weights)
        for name, (size, mtime) in taken.linked.items():
            entry = os.stat(taken.path / name)
            if (entry.st_size, entry.st_mtime_ns) != (size, mtime):
                return f"{name} was overwritten in place (it is hard-linked)"
        if thorough and content_of(taken.path, taken.kind, taken.weights) != taken.content:
            return "its content is not what was taken"
    except (Incomplete, OSError) as reason:
        return str(reason)
    return ""


def content_of(folder: Path, kind: Kind, weights: tuple[str, ...]) -> str:
    """SHA-256, hex, of a model: its tensors and its config. Reads all of it.

    The order of metadata in a safetensors header is random and a config names the version that wrote it: both are
    left out, so that the final model and the last checkpoint, saved seconds apart, come out equal.

    Raises:
        Incomplete, OSError: it cannot be read.
    """
    digest = hashlib.sha256(_config(folder, kind))
    for name in weights:
        with open(folder / name, "rb") as source:
            digest.update(_header(source, folder / name))
            while block := source.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def copies_folder(copies: Path | None, own: Path, output_dir: Path) -> Path:
    """Where the copies of one output folder go, and nothing else, so that leftovers there can be removed.

    Args:
        copies: where the user wants copies of any run; None for `own`, our folder in the output folder.
    """
    if copies is None:
        return own / "copies"
    return Path(copies) / hashlib.sha256(os.fsencode(os.path.realpath(output_dir))).hexdigest()[:12]


def _copy(folder: Path, proof: Proof, partial: Path, hard_links: bool) -> None:
    with contextlib.ExitStack() as stack:
        sources = {name: stack.enter_context(open(folder / name, "rb")) for name in proof.files}
        opened = {name: os.fstat(source.fileno()) for name, source in sources.items()}
        again = prove(folder, None if _is_final(folder, proof) else proof.step)
        if not again.complete or again.signature != proof.signature:
            raise Lost(f"it changed before it was copied: {again.why or 'other files'}")
        for name, source in sources.items():
            before, target = opened[name], partial / name
            if target.parent != partial:
                _make_folder(target.parent)
            linked = hard_links and name in proof.weights and _link(folder / name, target, before)
            if not linked:
                with open(target, "wb") as copy:
                    os.fchmod(copy.fileno(), 0o644)
                    shutil.copyfileobj(source, copy, BLOCK)
            after = os.fstat(source.fileno())
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise Lost(f"{name} was written while it was copied")


def _put(partial: Path, path: Path, proof: Proof, content: str) -> None:
    """Give the copy its name. One that is there with the same content stays: it may be in use."""
    if path.is_dir():
        with contextlib.suppress(Incomplete, OSError):
            if content_of(path, proof.kind, proof.weights) == content:
                return
        shutil.rmtree(path)
    os.rename(partial, path)


def _link(source: Path, target: Path, expected: os.stat_result) -> bool:
    """Hard-link a large file, if the name still is the file that was opened and the file system can."""
    if expected.st_size <= LINK_BYTES:
        return False
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links; a vanished name is copied from what we hold open
        return False
    if os.stat(target).st_ino == expected.st_ino:
        return True
    os.unlink(target)
    return False


def _links(taken_folder: Path, weights: tuple[str, ...]) -> dict[str, list[int]]:
    """The weight files that others still have a name for: name -> [bytes, mtime in ns]."""
    entries = {name: os.stat(taken_folder / name) for name in weights}
    return {name: [entry.st_size, entry.st_mtime_ns] for name, entry in entries.items() if entry.st_nlink > 1}


def _is_final(folder: Path, proof: Proof) -> bool:
    return step_of(folder.name) != proof.step


def _make_folder(folder: Path) -> None:
    """Make a folder that others may enter, and its missing parents with it."""
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # whatever the umask


def _check_room(folder: Path, proof: Proof, into: Path, hard_links: bool) -> None:
    """Refuse where the copy would take the room that training needs for its next checkpoint."""
    whole = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
    sizes = {name: os.stat(folder / name).st_size for name in proof.files}
    by_link = hard_links and os.stat(folder).st_dev == os.stat(into).st_dev
    copied = sum(size for name, size in sizes.items() if not (by_link and name in proof.weights and size > LINK_BYTES))
    free = shutil.disk_usage(into).free
    if free < copied + whole + SPARE_BYTES:
        raise Blocked(
            f"not enough room in {into}: {free >> 20} MiB free, {copied >> 20} MiB for the copy, and "
            f"{(whole + SPARE_BYTES) >> 20} MiB are kept for the next checkpoint of the training"
        )


def _reason(error: OSError, into: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no room in {into}: {error.strerror}"
    return f"cannot be copied: {error.strerror or error} ({error.filename or into})"


def _config(folder: Path, kind: Kind) -> bytes:
    """The config in one spelling: PEFT keeps module names in sets, whose order differs between two processes."""
    config = read_json(folder / (ADAPTER_CONFIG if kind == "adapter" else CONFIG))
    config = {key: value for key, value in config.items() if key not in _NO_CONTENT}
    for key in ("target_modules", "modules_to_save"):
        if isinstance(config.get(key), list):
            config[key] = sorted(map(str, config[key]))
    return json.dumps(config, sort_keys=True).encode()


def _header(source: BinaryIO, file: Path) -> bytes:
    """The header of a weight file in one spelling; `source` is left at the tensors' first byte."""
    if file.suffix != ".safetensors":
        return b""
    start, header = read_header(file)
    source.seek(start)
    header.pop("__metadata__", None)
    return json.dumps(header, sort_keys=True).encode()
