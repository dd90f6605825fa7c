"""`llamafactory-obs drill resume RUN.yaml`: what the drill does with its words."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import as_json, own_stdout

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
    add("config", metavar="RUN.yaml", help="the run config that LlamaFactory would train with")
    add("overrides", nargs="*", metavar="key=value", help="as for `train`")
    add("--steps", type=int, default=100, metavar="N", help="steps before the break (default: 100)")
    add("--extra", type=int, default=20, metavar="N", help="steps after it (default: 20)")
    add("--out", metavar="DIR", help="a new folder for the drill (default: <output_dir>-drill/resume-<time>)")
    add(
        "--take-away",
        choices=PARTS,
        metavar="PART",
        help=f"take it from the checkpoint before the resume, to see the drill fail: {', '.join(PARTS)}",
    )
    add("--keep", action="store_true", help="keep the trainings' folders; without it the report and the logs stay")
    add("--json", action="store_true", help="one JSON object on stdout and nothing else there")


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
    from ...texts import speaking

    with own_stdout() as stdout, speaking("en"):  # the report beside the trainings is for programs, too
        from ...preflight.run_config import read_run_config
        from .drill import drill

        outcome = drill(
            read_run_config(request.config, request.overrides),
            steps=request.steps,
            extra=request.extra,
            out=request.out,
            take_away=request.take_away,
            keep=request.keep,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    if request.as_json:
        print(as_json(outcome.as_dict(), stdout, indent=2), file=stdout)
    else:
        from .terminal import show

        show(outcome, stdout)
    return outcome.exit_code
