"""`llamafactory-obs overfit RUN.yaml`: what the verb does with its words."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import own_stdout, print_json, progress
from ...texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        steps: at most.
        rows: `12` or `NAME:12`; empty lets them be chosen.
        longest: the longest rows instead of ordinary ones.
        rate: in place of the config's learning rate.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    steps: int = 500
    rows: tuple[str, ...] = ()
    longest: bool = False
    rate: float | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--steps", type=int, default=500, metavar="N", help=text("help.overfit.steps"))
    add("--row", action="append", default=[], metavar="[NAME:]N", help=text("help.overfit.row"))
    add("--rows-longest", action="store_true", help=text("help.overfit.rows-longest"))
    add("--lr", type=float, metavar="RATE", help=text("help.overfit.lr"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense.
    """
    if args.steps < 2:
        raise ConfigError(f"--steps must be at least 2, got {args.steps}")
    if args.lr is not None and not (math.isfinite(args.lr) and args.lr > 0):
        raise ConfigError(f"--lr must be above 0, got {args.lr}")
    if args.row and args.rows_longest:
        raise ConfigError("--row and --rows-longest cannot be used together")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        steps=args.steps,
        rows=tuple(args.row),
        longest=args.rows_longest,
        rate=args.lr,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Train, judge, show, and return the exit code: 0 learned, 1 not, or it cannot be told.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from ..run_config import read_run_config
        from .single_batch import single_batch

        outcome = single_batch(
            read_run_config(request.config, request.overrides),
            steps=request.steps,
            wanted=request.rows,
            take_longest=request.longest,
            rate=request.rate,
            say=progress,
        )
    if request.as_json:
        print_json(outcome.as_dict(), stdout)
    else:
        from .terminal import show

        show(outcome, stdout)
    return outcome.exit_code
