"""`llamafactory-obs overfit RUN.yaml`: what the verb does with its words."""

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import as_json, own_stdout


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
    add("config", metavar="RUN.yaml", help="the run config that LlamaFactory would train with")
    add("overrides", nargs="*", metavar="key=value", help="as for `train`")
    add("--steps", type=int, default=500, metavar="N", help="at most so many steps (default: 500)")
    add("--row", action="append", default=[], metavar="[NAME:]N", help="a row of the batch, from 0; may be repeated")
    add("--rows-longest", action="store_true", help="take the longest rows, not ordinary ones")
    add("--lr", type=float, metavar="RATE", help="another learning rate than the config's")
    add("--json", action="store_true", help="one JSON object on stdout and nothing else there")


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
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    if request.as_json:
        print(as_json(outcome.as_dict(), stdout, indent=2), file=stdout)
    else:
        from .terminal import show

        show(outcome, stdout)
    return outcome.exit_code
