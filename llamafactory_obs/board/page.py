"""The page itself: one HTML file with the texts of its language as data, and the few files that it loads."""

import functools
import hashlib
import json
import os
import re
from importlib import resources

from ..texts import LANGUAGES, language, texts

_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_SCRIPTS = ("board", "cards", "chart", "charts", "format", "hands", "lists", "steps", "store")
#: name in the address -> (package, file)
_FILES = {
    **{name: ("llamafactory_obs.charts", name) for name in ("page.css", "values.js")},
    "board.css": (__package__, "board.css"),
    **{f"{name}.js": (__package__, f"{name}.js") for name in _SCRIPTS},
}


def assets() -> frozenset[str]:
    """The names of all files that the page loads."""
    return frozenset(_FILES)


@functools.cache
def asset(name: str) -> tuple[str, bytes, str]:
    """Content type, content and ETag of a file that the page loads."""
    package, file = _FILES[name]
    content = resources.files(package).joinpath(file).read_bytes()
    return _KINDS[name.rpartition(".")[2]], content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


@functools.cache
def index(lang: str) -> bytes:
    """The page in one language."""
    words = {key.removeprefix("page."): value for key, value in texts("board", lang).items() if key.startswith("page.")}
    # a data block is not run, whatever the policy says; `<` would end it
    data = json.dumps({"lang": lang, "words": words}, ensure_ascii=False).replace("<", "\\u003c")
    html = resources.files(__package__).joinpath("index.html").read_text(encoding="utf-8")
    filled = re.sub(r"\{\{(\w+)\}\}", lambda match: _escape(words[match[1]]), html.replace("{{LANG}}", _tag(lang)))
    return filled.replace("<!--texts-->", f'<script type="application/json" id="texts">{data}</script>').encode("utf-8")


def language_of(asked: str | None, accepted: str) -> str:
    """`en` or `zh`: `?lang=`, else LLAMAFACTORY_OBS_LANG, else the browser's first known one, else the locale.

    Args:
        asked: the word in the address.
        accepted: the header Accept-Language, RFC 9110 section 12.5.4.
    """
    if asked and asked.lower()[:2] in LANGUAGES:
        return asked.lower()[:2]
    if os.environ.get("LLAMAFACTORY_OBS_LANG"):
        return language()
    ranked = []
    for place, part in enumerate(accepted.split(",")[:20]):
        match = re.fullmatch(r"\s*([A-Za-z-]+|\*)\s*(?:;\s*q=([01](?:\.\d{0,3})?))?\s*", part)
        if match and match[1].lower()[:2] in LANGUAGES and float(match[2] or 1) > 0:
            ranked.append((-float(match[2] or 1), place, match[1].lower()[:2]))
    return min(ranked)[2] if ranked else language()


def _tag(lang: str) -> str:
    return {"zh": "zh-CN"}.get(lang, lang)


def _escape(text: str) -> str:
    import html

    return html.escape(text)
