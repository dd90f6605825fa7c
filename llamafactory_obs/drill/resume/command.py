"""`llamafactory-obs drill resume RUN.yaml`: what the drill does with its words."""

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import own_stdout, print_json, progress
from ...texts import text

#: what `--take-away` takes
PARTS = ("optimizer", "scheduler", "rng", "data_order")


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        steps: before the break.
        extra: after it.
        out: the drill's folder; None for `<output_dir>-drill/resume-<time>`.
        take_away: what the resume must do without; None for nothing.
        keep: the trainings' folders stay.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    steps: int = 100
    extra: int = 20
    out: Path | None = None
    take_away: str | None = None
    keep: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The drill's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--steps", type=int, default=100, metavar="N", help=text("help.drill.resume.steps"))
    add("--extra", type=int, default=20, metavar="N", help=text("help.drill.resume.extra"))
    add("--out", metavar="DIR", help=text("help.drill.resume.out"))
    add(
        "--take-away",
        choices=PARTS,
        metavar="PART",
        help=text("help.drill.resume.take-away", parts=", ".join(PARTS)),
    )
    add("--keep", action="store_true", help=text("help.drill.resume.keep"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense.
    """
    if args.steps < 1:
        raise ConfigError(f"--steps must be at least 1, got {args.steps}")
    if args.extra < 2:  # what the first update after the resume did shows in the step after it
        raise ConfigError(f"--extra must be at least 2, got {args.extra}")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        steps=args.steps,
        extra=args.extra,
        out=Path(args.out).expanduser() if args.out else None,
        take_away=args.take_away,
        keep=args.keep,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Train four times, compare, show, and return the exit code.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from ...preflight.run_config import read_run_config
        from .drill import drill

        outcome = drill(
            read_run_config(request.config, request.overrides),
            steps=request.steps,
            extra=request.extra,
            out=request.out,
            take_away=request.take_away,
            keep=request.keep,
            say=progress,
        )
    if request.as_json:
        print_json(outcome.as_dict(), stdout)
    else:
        from .terminal import show

        show(outcome, stdout)
    return outcome.exit_code
