"""`llamafactory-obs compare A B ...`: what the verb does with its words."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json
from ..texts import text

BY = ("train_loss", "eval_best", "eval_last", "accuracy", "probes", "hours", "tokens_per_s", "cost", "memory_gib")
WORSE = ("any", "eval", "train", "probes")


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        paths: folders and logs; the first is the reference.
        lang: "en" or "zh"; None for the terminal's language.
        price, currency: of the machine per hour; None for what each run's config says.
        by: sort the table by this fact.
        fail_if_worse: exit code 1 where a run is worse than A in this.
        html: where the page goes.
        as_json: one object on stdout.
    """

    paths: tuple[Path, ...]
    lang: str | None = None
    price: float | None = None
    currency: str = ""
    by: str | None = None
    fail_if_worse: str | None = None
    html: Path | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("paths", nargs="+", metavar="RUN", help=text("help.compare.paths"))
    add("--json", action="store_true", help=text("help.common.json"))
    add("--html", metavar="FILE", help=text("help.compare.html"))
    add("--by", choices=BY, metavar="FACT", help=text("help.compare.by", facts=", ".join(BY)))
    add("--price", type=float, metavar="PER_HOUR", help=text("help.compare.price"))
    add("--currency", default="", metavar="WORD", help=text("help.common.currency"))
    add(
        "--fail-if-worse",
        choices=WORSE,
        metavar="WHAT",
        help=text("help.compare.fail-if-worse", kinds=", ".join(WORSE)),
    )
    add("--lang", choices=("en", "zh"), help=text("help.compare.lang"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: words that do not go together.
    """
    from ..settings import parse_price_words

    parse_price_words(args.price, args.currency)
    if args.html == "":
        raise ConfigError("--html: name a file")
    if "" in args.paths:
        raise ConfigError("compare: one of the runs has no name; name output_dirs or logs")
    paths = tuple(Path(path).expanduser() for path in args.paths)
    html = Path(args.html).expanduser() if args.html else None
    return Request(paths, args.lang, args.price, args.currency, args.by, args.fail_if_worse, html, args.json)


def run(request: Request) -> int:
    """Compare, show, and return the exit code: 0; 1 a run is worse and that was asked for; 2 bad input.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    from ..texts import language, speaking

    with speaking(request.lang or language()):
        return _compare(request)


def _compare(request: Request) -> int:
    from ..summary import Price
    from .compare import compare
    from .runs import read_runs

    with own_stdout() as stdout:
        if request.html is not None:
            from ..charts import check_page

            check_page(request.html)
        price = None if request.price is None else Price(request.price, request.currency, "--price")
        comparison = compare(read_runs(request.paths, price), request.by)
        if request.html is not None:
            from .page import write

            write(comparison, request.html)
    if request.as_json:
        from .plain import as_dict

        print_json(as_dict(comparison), stdout)
    else:
        from .show import show

        show(comparison, stdout, request.by)
    if request.html is not None:
        from .words import t

        print(t("written", path=request.html), file=sys.stderr)
    return 1 if request.fail_if_worse and is_worse(comparison, request.fail_if_worse) else 0


def is_worse(comparison, what: str) -> bool:
    """Is any run worse than A beyond noise, by what was asked for?"""
    return any(_worse(pair, what) for pair in comparison.pairs)


def _worse(pair, what: str) -> bool:
    codes = dict(pair.verdict.evidence)
    if codes.get("broken", {}).get("run") == pair.b:
        return True
    found = {
        "eval": codes.get("eval", {}).get("difference", 0) > 0,
        "train": codes.get("train_parted", {}).get("last", 0) > 0,
        "probes": "probes" in codes and codes["probes"]["broke"] > codes["probes"]["fixed"],
    }
    return found[what] if what in found else any(found.values())
