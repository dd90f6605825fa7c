"""The frame of a self-contained page: its style and script inside, and a policy that lets nothing else in or out."""

import base64
import hashlib
import os
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from ..errors import ConfigError
from .plot import identifier
from .text import escape

#: the first bytes of every page; a file that begins otherwise is somebody's own and is not overwritten
_MARK = "<!doctype html>\n<!-- llamafactory-obs page -->\n"


def page(title: str, sections: Sequence[tuple[str, str, str]], head: str = "", lang: str = "en") -> str:
    """A whole page.

    The Content-Security-Policy forbids all network and every script but ours, which is named by its hash (CSP level 3,
    section 2.3.1): text from a record could not act even if it were not escaped.

    Args:
        title: of the page, plain text.
        sections: (id, title, HTML) in order; one with an empty title has no heading and no place in the contents.
        head: HTML above the contents.
        lang: language of its texts, for the browser and screen readers.
    """
    style, script = _asset("page.css"), _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<a href="#{identifier(id_)}">{escape(name)}</a>' for id_, name, _ in sections if name)
    body = "".join(
        f'<section id="{identifier(id_)}">{f"<h2>{escape(name)}</h2>" if name else ""}{content}</section>'
        for id_, name, content in sections
    )
    return (
        f'{_MARK}<html lang="{identifier(lang)}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f'<body>{head}<nav aria-label="contents">{links}'
        '<button type="button" id="reset" hidden>whole run</button></nav>'
        f"<main>{body}</main><script>{script}</script></body></html>\n"
    )


def write_page(text: str, path: str | os.PathLike) -> None:
    """Write a page, whole or not at all.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that we did not make.
    """
    path = Path(os.path.realpath(path))  # a link stays one, what it leads to is written
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name a file such as {path / 'page.html'}")
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: the folder {path.parent} does not exist; make it first")
        if os.path.lexists(path) and not (path.is_file() and _is_ours(path)):  # a device, a pipe: never replaced
            raise ConfigError(f"{path} exists and is not a page of ours: not overwritten; name another file")
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
            handle.write(text.encode("utf-8", "replace"))
        try:
            os.chmod(handle.name, 0o666 & ~_umask())
            os.replace(handle.name, path)
        except OSError:
            os.unlink(handle.name)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error}); name another file") from None


def _is_ours(path: Path) -> bool:
    with open(path, "rb") as handle:
        start = handle.read(len(_MARK))
    return not start or start == _MARK.encode("utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
