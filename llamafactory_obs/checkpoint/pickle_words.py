"""Plain values in a pickle, read off its opcodes: it is disassembled, never loaded, so nothing in it can run."""

import itertools
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .files import Incomplete, open_file, reading

#: a pickle of arguments or of a table of shards is far smaller
_MAX_BYTES = 64 << 20

#: opcodes whose value is their argument
_VALUES = frozenset(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINFLOAT", "FLOAT"))
_VALUES |= {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"}
_CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}
_PUTS, _GETS = frozenset(["PUT", "BINPUT", "LONG_BINPUT"]), frozenset(["GET", "BINGET", "LONG_BINGET"])
#: stands for what is no plain value: an object, a list, a mapping
OTHER = object()


def words(raw: bytes) -> Iterator[object]:
    """Strings, numbers, True, False, None in the order in which they are pushed; `OTHER` for anything else.

    Raises:
        ValueError: it is no pickle, or is cut off.
    """
    memo: dict[int, object] = {}
    last: object = OTHER
    for code, argument, _ in pickletools.genops(raw):
        if code.name in _PUTS:
            memo[argument] = last
            continue
        if code.name == "MEMOIZE":
            memo[len(memo)] = last
            continue
        if code.name in _VALUES:
            last = argument
        elif code.name in _CONSTANTS:
            last = _CONSTANTS[code.name]
        elif code.name in _GETS:
            last = memo.get(argument, OTHER)
        else:
            last = OTHER
            if code.name in ("MARK", "SETITEMS", "SETITEM", "TUPLE", "PROTO", "FRAME"):
                continue
        yield last


def training_args(file: Path) -> dict[str, object]:
    """The plain arguments in a `training_args.bin`, by name; those that are lists, mappings or classes are left out.

    Raises:
        Incomplete: it is missing or no whole torch file.
    """
    try:
        with reading(file.name), open_file(file) as handle, zipfile.ZipFile(handle) as archive:
            member = next(one for one in archive.infolist() if one.filename.endswith("/data.pkl"))
            if member.file_size > _MAX_BYTES:
                raise Incomplete(f"{file.name} holds a pickle of {member.file_size} bytes, which arguments never have")
            found = list(words(archive.read(member)))
    except (zipfile.BadZipFile, ValueError, StopIteration, NotImplementedError, RuntimeError, EOFError):
        raise Incomplete(f"{file.name} is no whole torch file") from None
    pairs = itertools.pairwise(found)
    return {one: value for one, value in pairs if isinstance(one, str) and one.isidentifier() and value is not OTHER}
