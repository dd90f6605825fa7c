"""`llamafactory-obs watch DIR`: what the verb does with its words."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import as_json, own_stdout
from ..texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        path: the run's output folder; it need not be there yet.
        interval: seconds between two looks.
        once: look once.
        price: of the machine in an hour; None: what the run's config says.
        as_json: objects instead of text.
    """

    path: Path
    interval: float = 2.0
    once: bool = False
    price: float | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("path", metavar="DIR", help=text("help.watch.path"))
    add("--interval", type=float, default=2.0, metavar="S", help=text("help.watch.interval"))
    add("--once", action="store_true", help=text("help.watch.once"))
    add("--price", type=float, metavar="P", help=text("help.common.price"))
    add("--json", action="store_true", help=text("help.watch.json"))
    parser.epilog = text("help.watch.epilog")


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense, a path that is no folder, with `--once` one that is not there.
    """
    if not (math.isfinite(args.interval) and 0.1 <= args.interval <= 3600):
        raise ConfigError(f"--interval must be between 0.1 and 3600 seconds, got {args.interval:g}")
    from ..settings import parse_price_words

    parse_price_words(args.price)
    path = Path(args.path).expanduser()
    try:
        there, folder = path.exists(), path.is_dir()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    if there and not folder:
        raise ConfigError(
            f"{path} is no folder; name the run's output_dir (a log by itself: llamafactory-obs diagnose)"
        )
    if args.once and not there:
        raise ConfigError(f"{path}: no such folder; without --once it is waited for")
    return Request(path, args.interval, args.once, args.price, args.json)


def run(request: Request) -> int:
    """Watch; the exit code is 0 or 1, see `outcome.code`; 143 and the like where a signal ended it."""
    with own_stdout() as stdout:
        from ..live import Follower

        follower = Follower(request.path, price=request.price)
        if request.as_json:
            from .plain import follow

            return follow(follower, request, stdout, lambda snapshot: as_json(snapshot.as_dict(), stdout))
        from ..texts import speaking
        from .writing import Writing

        writing = Writing.of(stdout)
        with speaking(writing.language):
            if request.once or not stdout.isatty() or not sys.stdin.isatty() or writing.dumb:
                from .line import line
                from .plain import follow

                return follow(follower, request, stdout, lambda snapshot: line(snapshot, writing))
            from .loop import watch

            return watch(follower, request.interval, stdout, writing)
