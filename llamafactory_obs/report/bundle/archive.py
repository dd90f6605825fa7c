"""The archive itself, `.tar.gz` or `.zip`: written the same each time, read without unpacking."""

import gzip
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

#: what an archive says of every file: no time (zip begins in 1980), one owner, plain rights
_ZIP_TIME, _MODE = (1980, 1, 1, 0, 0, 0), 0o644


def write(target: Path, root: str, files: list[tuple[str, Path]]) -> None:
    """Write an archive.

    Args:
        target: its name says the kind.
        root: the folder that everything lies in.
        files: (name inside, where it lies now), in this order.

    Raises:
        OSError: something cannot be read or written.
    """
    if target.name.endswith(".zip"):
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for name, path in files:
                entry = zipfile.ZipInfo(f"{root}/{name}", _ZIP_TIME)
                entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, _MODE << 16, 3
                entry.file_size = path.stat().st_size  # larger than 4 GiB: zip64, which must be known before
                with archive.open(entry, "w") as inside, open(path, "rb") as file:
                    while block := file.read(1 << 20):
                        inside.write(block)
        return
    with (
        open(target, "wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in files:
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = path.stat().st_size, _MODE
            with open(path, "rb") as file:
                archive.addfile(entry, file)


def members(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """(name without the root, content) of each file, in the archive's order; a name that leads out of it is kept whole.

    Raises:
        OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error: it is damaged, or no archive.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    with archive.open(entry) as file:
                        yield _inside(entry.filename), file
        return
    with tarfile.open(path, "r:gz") as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() else None
            if file is not None:
                with file:
                    yield _inside(entry.name), file
            elif not entry.isdir():
                yield f"{entry.name} (a link or device)", open(os.devnull, "rb")  # noqa: SIM115


def _inside(name: str) -> str:
    parts = PurePosixPath(name).parts
    return "/".join(parts[1:]) if len(parts) > 1 and ".." not in parts and not name.startswith("/") else name
