"""The bytes of a file as text, or one line that says why it is none."""

import codecs
import re
from pathlib import Path

from ..errors import ConfigError

HEAD = 1 << 16
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAGIC = (
    (b"\x1f\x8b", "a gzip file: unpack it first (gunzip)"),
    (b"PK\x03\x04", "a zip archive (a PyTorch file is one as well), no log"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first (unzstd)"),
    (b"\xfd7zXZ", "an xz file: unpack it first (unxz)"),
    (b"BZh", "a bzip2 file: unpack it first (bunzip2)"),
    (b"\x89PNG", "a picture, no log"),
    (b"\xff\xd8\xff", "a picture, no log"),
    (b"\x80\x02", "a pickle, which is never opened, no log"),
    (b"\x80\x03", "a pickle, which is never opened, no log"),
    (b"\x80\x04", "a pickle, which is never opened, no log"),
    (b"\x80\x05", "a pickle, which is never opened, no log"),
    (b"version https://git-lfs", "a git-LFS pointer, the log itself was not fetched: run `git lfs pull`"),
)
_HOLE = re.compile(rb"\x00{16,}")  # what a crash leaves of a page that was never written
_SAFETENSORS = re.compile(rb".{8}\{\s*\"", re.DOTALL)


def encoding(path: Path, head: bytes) -> str:
    """The encoding of a text file by its first bytes.

    Raises:
        ConfigError: it is empty or no text.
    """
    if not head.strip(b"\x00 \r\n\t\xef\xbb\xbf\xff\xfe"):
        raise ConfigError(f"{path}: the file is empty; nothing has been logged in it")
    for mark, name in _BOMS:
        if head.startswith(mark):
            return "utf-8-sig" if name == "utf-8" else name
    for magic, what in _MAGIC:
        if head.startswith(magic):
            raise ConfigError(f"{path} is {what}")
    head = _HOLE.sub(b"", head) if not _SAFETENSORS.match(head) else head
    zeros = head.count(0)
    if zeros > len(head) // 4:
        if head[1::2].count(0) > len(head) * 2 // 5:
            return "utf-16-le"
        if head[::2].count(0) > len(head) * 2 // 5:
            return "utf-16-be"
    control = sum(head.count(byte) for byte in range(32) if byte not in b"\t\n\r\x08\x1b\x0c\x00")
    if zeros * 20 > len(head) or control * 50 > len(head) or (zeros and _SAFETENSORS.match(head)):
        raise ConfigError(
            f"{path} is a binary file, no log; name a trainer_log.jsonl, trainer_state.json or console log"
        )
    return "utf-8"
