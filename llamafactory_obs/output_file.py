"""The files that a verb writes for a person: refused before any work, and never over a file that is not ours."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from .errors import ConfigError


def check_output(
    path: str | os.PathLike, *, option: str = "", kind: str = "file", ours: Callable[[Path], bool] | None = None
) -> Path:
    """Refuse a file that could not be written.

    Args:
        path: of the file.
        option: that names it, for the message.
        kind: what is written, for the message.
        ours: is a file that stands there one that we wrote? It may be replaced. None: no file may.

    Returns:
        The place; where the path is a link, what it leads to.

    Raises:
        ConfigError: a folder or another's file is there, or nothing can be written.
    """
    said = f"{option} {path}".lstrip()
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise ConfigError(f"{said} is a folder; name a file in it")
        if not place.parent.is_dir():
            raise ConfigError(f"{said}: no such folder {place.parent}; make it first")
        if os.path.lexists(place) and ours is None:
            raise ConfigError(f"{said} exists and is not overwritten; name another file")
        if os.path.lexists(place) and not (place.is_file() and ours(place)):  # a device, a pipe: never replaced
            raise ConfigError(f"{said} exists and is no {kind} of ours: not overwritten; name another file")
        with _beside(place, delete=True):
            pass
    except OSError as error:
        raise ConfigError(f"{said}: cannot be written ({error.strerror or error}); name another file") from None
    return place


def check_apart(*places: Path | None) -> None:
    """Refuse one file for two things.

    Args:
        places: as `check_output` returns them; None for what is not written.

    Raises:
        ConfigError: two of them are the same.
    """
    named = [place for place in places if place is not None]
    for place in named:
        if named.count(place) > 1:
            raise ConfigError(f"{place} is named for two things: name another file for one of them")


def begins_with(mark: str) -> Callable[[Path], bool]:
    """Tells whether a file begins so; an empty one is nobody's."""
    wanted = mark.encode()

    def begins(path: Path) -> bool:
        with path.open("rb") as file:
            start = file.read(len(wanted))
        return not start or start == wanted

    return begins


def replace_file(place: Path, content: str) -> None:
    """Write a file in one moment: whole, or what was there stays.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        with _beside(place, delete=False) as file:
            try:
                file.write(content.encode("utf-8", "replace"))
                file.close()
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(file.name, 0o666 & ~mask)
                os.replace(file.name, place)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise ConfigError(f"{place}: cannot be written ({error.strerror or error}); name another file") from None


def write_new(place: Path, content: str) -> None:
    """Write a file where there is none.

    Raises:
        ConfigError: it cannot be written, or one has come up meanwhile.
    """
    try:
        with place.open("x", encoding="utf-8", errors="replace") as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"{place}: cannot be written ({error.strerror or error}); name another file") from None


def _beside(place: Path, delete: bool):
    return tempfile.NamedTemporaryFile("wb", dir=place.parent, prefix=f".{place.name}.", delete=delete)
