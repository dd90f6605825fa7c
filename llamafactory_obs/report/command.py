"""`llamafactory-obs report DIR`: what the verb does with its words."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json
from ..output_file import check_apart
from ..texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        path: a run's folder, or a log.
        lang: "en" or "zh"; None for the terminal's language.
        price, currency: of the whole machine per hour; None for what the run's config says.
        note: words to add to the record.
        html, markdown, bundle: where they go; markdown "-" is stdout.
        verify: a bundle to be checked; `path` then is the run that its weights are compared with, or None.
        as_json: one object on stdout.
    """

    path: Path | None
    lang: str | None = None
    price: float | None = None
    currency: str = ""
    note: str | None = None
    html: Path | None = None
    markdown: str | None = None
    bundle: Path | None = None
    verify: Path | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("path", nargs="?", metavar="DIR", help=text("help.report.path"))
    add("--lang", choices=("en", "zh"), help=text("help.report.lang"))
    add("--price", type=float, metavar="PER_HOUR", help=text("help.report.price"))
    add("--currency", default="", metavar="WORD", help=text("help.common.currency"))
    add("--note", metavar="TEXT", help=text("help.report.note"))
    add("--html", metavar="FILE", help=text("help.report.html"))
    add("--markdown", metavar="FILE", help=text("help.report.markdown"))
    add("--bundle", metavar="FILE", help=text("help.report.bundle"))
    add("--verify", metavar="FILE", help=text("help.report.verify"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: words that do not go together.
    """
    for word in ("html", "markdown", "bundle", "verify"):
        if getattr(args, word) == "":
            raise ConfigError(f"--{word}: name a file")
    if not args.path and args.verify is None:
        raise ConfigError("report: name the run's output_dir: `llamafactory-obs report DIR`")
    from ..settings import parse_price_words

    parse_price_words(args.price, args.currency)
    if args.json and args.markdown == "-":
        raise ConfigError("--json and --markdown - both want stdout: name a file for one of them")
    if args.verify and any((args.note, args.html, args.markdown, args.bundle)):
        raise ConfigError("--verify only checks a bundle: call it alone")
    if args.bundle and not args.bundle.endswith((".tar.gz", ".tgz", ".zip")):
        raise ConfigError(f"--bundle: name a .tar.gz or a .zip, got {args.bundle}")
    path, html, bundle, verify = (
        Path(word).expanduser() if word else None for word in (args.path, args.html, args.bundle, args.verify)
    )
    return Request(
        path, args.lang, args.price, args.currency, args.note, html, args.markdown, bundle, verify, args.json
    )


def run(request: Request) -> int:
    """Write the sheet, and return the exit code: 0; 1 a bundle that is not whole; 2 bad input.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    from ..texts import language, speaking

    with speaking(request.lang or language()):
        return _verify(request) if request.verify is not None else _report(request)


def _report(request: Request) -> int:
    from ..diagnosis.command import as_dict as diagnosis_as_dict
    from ..diagnosis.judge import judge
    from ..summary import Price, as_dict, load, summarize
    from ..summary.price import priced
    from ..texts import language, speaking
    from .values import t

    spoken = language()
    with own_stdout() as stdout:
        page, file, bundle = _places(request)
        loaded = load(request.path)
        written = {"note": _note(request, loaded)} if request.note is not None else {}
        summary = summarize(loaded)
        price = None if request.price is None else Price(request.price, request.currency, "--price")
        summary = summary if price is None else priced(summary, price)
        only_json = request.as_json and page is None and file is None
        with speaking("en" if only_json else spoken):
            diagnosis = judge(loaded.curves)
        if page is not None:
            from ..charts import write_page
            from .page import render

            write_page(render(summary, diagnosis, loaded.curves), page)
            written["html"] = str(request.html)
        if request.markdown is not None:
            from .markdown import markdown
            from .write import write_markdown

            sheet = markdown(summary, diagnosis, loaded.curves)
            if file is not None:
                write_markdown(sheet, file)
                written["markdown"] = request.markdown
        if bundle is not None:
            from .bundle import pack

            written |= {"bundle": pack(loaded, price, bundle)}
    if request.as_json:
        with speaking("en"):
            english = diagnosis if only_json or spoken == "en" else judge(loaded.curves)
            answer = {"summary": as_dict(summary), "diagnosis": diagnosis_as_dict(english), **written}
        print_json(answer, stdout)
    elif request.markdown == "-":
        print(sheet, end="", file=stdout)
    elif not written.keys() - {"note"}:
        from .terminal import show

        show(summary, diagnosis, loaded.curves, stdout)
    for key in ("html", "markdown"):
        if key in written:
            print(t("written", path=written[key]), file=sys.stderr)
    if "bundle" in written:
        from .bundle import told

        print(told(written["bundle"]), file=sys.stderr)
    return 0


def _places(request: Request) -> tuple[Path | None, Path | None, Path | None]:
    """Where page, Markdown and bundle may go; whatever is refused is refused here, before a note is added."""
    from ..charts import check_page
    from .bundle import check_bundle
    from .notes import check_note
    from .write import check_markdown

    page = check_page(request.html) if request.html is not None else None
    to_file = request.markdown not in (None, "-")
    file = check_markdown(Path(request.markdown).expanduser()) if to_file else None
    bundle = check_bundle(request.bundle) if request.bundle is not None else None
    check_apart(page, file, bundle)
    if request.note is not None:
        check_note(request.path, request.note)
    return page, file, bundle


def _note(request: Request, loaded) -> dict:
    from .notes import add_note
    from .values import t

    file, number = add_note(request.path, request.note, max(loaded.curves.steps, default=0))
    print(t("noted", number=number, path=file), file=sys.stderr)
    return {"file": str(file), "number": number}


def _verify(request: Request) -> int:
    from .bundle import told, verify

    with own_stdout() as stdout:
        found = verify(request.verify, request.path)
    if request.as_json:
        print_json(found, stdout)
    else:
        print(told(found), file=stdout)
    return 0 if found["whole"] else 1
