"""The frame of a self-contained page: its style and script inside, and a policy that lets nothing else in or out."""

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from ..output_file import begins_with, check_output, replace_file
from ..texts import language, text, texts
from .plot import identifier
from .text import data_block, escape

#: the first bytes of every page; a file that begins otherwise is somebody's own and is not overwritten
MARK = "<!doctype html>\n<!-- llamafactory-obs page -->\n"


def page(title: str, sections: Sequence[tuple[str, str, str]], head: str = "") -> str:
    """A whole page, in `language()`.

    The Content-Security-Policy forbids all network and every script but ours, which is named by its hash (CSP level 3,
    section 2.3.1): text from a record could not act even if it were not escaped.

    Args:
        title: of the page, plain text.
        sections: (id, title, HTML) in order; one with an empty title has no heading and no place in the contents.
        head: HTML above the contents.
    """
    style, script = _asset("page.css"), _asset("values.js").replace("export ", "") + _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    told = texts("charts", language())
    words = {key.removeprefix("page."): one for key, one in told.items() if key.startswith("page.")}
    links = "".join(f'<a href="#{identifier(id_)}">{escape(name)}</a>' for id_, name, _ in sections if name)
    body = "".join(
        f'<section id="{identifier(id_)}">{f"<h2>{escape(name)}</h2>" if name else ""}{content}</section>'
        for id_, name, content in sections
    )
    return (
        f'{MARK}<html lang="{language()}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f'<body>{head}<nav aria-label="{text("charts.contents")}">{links}'
        f'<button type="button" id="reset" hidden>{text("charts.whole_run")}</button></nav>'
        f"<main>{body}</main>{data_block(words, 'words')}<script>{script}</script></body></html>\n"
    )


def check_page(path: str | os.PathLike) -> Path:
    """Where a page may be written.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that we did not make.
    """
    return check_output(path, kind="page", ours=begins_with(MARK))


def write_page(text: str, path: str | os.PathLike) -> None:
    """Write a page, whole or not at all.

    Raises:
        ConfigError: as `check_page`.
    """
    replace_file(check_page(path), text)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
