"""`llamafactory-obs baseline-speed RUN.yaml`: what the verb does with its words."""

import argparse
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
        steps: measured steps of a block; None lets them be chosen.
        evaluate, save: measure these.
        callbacks: the config's callbacks that are not ours take part.
        price: of an hour of the machine.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    steps: int | None = None
    evaluate: bool = True
    save: bool = True
    callbacks: bool = False
    price: float | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add, either = parser.add_argument, argparse.BooleanOptionalAction
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--steps", type=int, metavar="N", help=text("help.baseline-speed.steps"))
    add("--eval", action=either, default=True, help=text("help.baseline-speed.eval"))
    add("--save", action=either, default=True, help=text("help.baseline-speed.save"))
    add("--callbacks", action="store_true", help=text("help.baseline-speed.callbacks"))
    add("--price-per-hour", type=float, metavar="X", help=text("help.baseline-speed.price-per-hour"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense.
    """
    if args.steps is not None and not 2 <= args.steps <= 1000:
        raise ConfigError(f"--steps must be between 2 and 1000, got {args.steps}")
    price = args.price_per_hour
    if price is not None and not (math.isfinite(price) and price >= 0):
        raise ConfigError(f"--price-per-hour must be 0 or more, got {price}")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        steps=args.steps,
        evaluate=args.eval,
        save=args.save,
        callbacks=args.callbacks,
        price=price,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Measure, show, and return the exit code: 0 the time goes into the model, 1 it does not, or it cannot be told.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from ..run_config import read_run_config
        from .measure import Wish, measure_speed

        report = measure_speed(
            read_run_config(request.config, request.overrides),
            Wish(request.steps, request.evaluate, request.save, request.callbacks, request.price),
            say=progress,
        )
    if request.as_json:
        print_json(report.as_dict(), stdout)
    else:
        from .terminal import show

        show(report, stdout)
    return report.exit_code
