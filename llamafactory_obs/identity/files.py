"""Content hashes of files, streamed; a file of the Hugging Face hub cache is not read when its name is its hash."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

BLOCK = 4 << 20
"""Bytes read at a time."""


def sha256_file(path: str | os.PathLike) -> str:
    """SHA-256 of a file's content, lower-case hex. Raises OSError where it cannot be read."""
    digest = hashlib.sha256()
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(view[:size])
    return digest.hexdigest()


def sha256_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_json(value: object) -> str:
    """SHA-256 of a JSON-able value, independent of the order of keys."""
    return sha256_text(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def hub_blob_sha256(path: str | os.PathLike) -> str | None:
    """The SHA-256 that the hub cache keeps as an LFS file's blob name; None for any other file.

    Layout `models--<org>--<name>/{blobs/<etag>, snapshots/<revision>/<file> -> ../../blobs/<etag>}`: the etag of an
    LFS file is its SHA-256 (64 hex), that of a small file its git SHA-1 (40 hex). Source: huggingface_hub, "Manage
    huggingface_hub cache-system".
    """
    real = Path(os.path.realpath(path))
    in_cache = real.parent.name == "blobs" and re.match(r"(models|datasets|spaces)--", real.parent.parent.name)
    return real.name if in_cache and os.path.islink(path) and re.fullmatch(r"[0-9a-f]{64}", real.name) else None


def hash_files(folder: str | os.PathLike, names: Iterable[str]) -> dict:
    """Hash files of a folder into one.

    Returns:
        `{"sha256", "files": [{"file", "bytes", "sha256", "source": "content" | "hub blob name"}]}`, files sorted by
        name; the whole is SHA-256 over the lines `<file>\\0<sha256>\\n`. Raises OSError for a file that cannot be read.
    """
    rows = []
    whole = hashlib.sha256()
    for name in sorted(names):
        path = Path(folder) / name
        size = path.stat().st_size  # follows the link: a dangling one raises
        known = hub_blob_sha256(path)
        digest = known or sha256_file(path)
        rows.append({"file": name, "bytes": size, "sha256": digest, "source": "hub blob name" if known else "content"})
        whole.update(f"{name}\0{digest}\n".encode())
    return {"sha256": whole.hexdigest(), "files": rows}
