"""`llamafactory-obs drill oom|spike|labels|throughput|nan|lora_off|all RUN.yaml`: what they do with their words."""

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import own_stdout, print_json, progress
from ...texts import text

#: by default, and at least: what is usual is known from 32 steps on after a warm-up, that steps are slower after 24
STEPS, LEAST_AT, LEAST_AFTER = 120, 41, 32
#: with fewer steps an incident after two thirds of them would be too early or too late
_LEAST = 94


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        name: of the incident, or `all`.
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        steps: of each training.
        at: the step of the incident.
        out: the drill's folder; None for `<output_dir>-drill/incident-<time>`.
        keep: the trainings' folders stay whole.
        as_json: one object on stdout.
    """

    name: str
    config: Path
    overrides: tuple[str, ...] = ()
    steps: int = STEPS
    at: int = STEPS * 2 // 3 + 1
    out: Path | None = None
    keep: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The words of all of them, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--steps", type=int, default=STEPS, metavar="N", help=text("help.drill.incident.steps", steps=STEPS))
    add("--at", type=int, metavar="N", help=text("help.drill.incident.at"))
    add("--out", metavar="DIR", help=text("help.drill.incident.out"))
    add("--keep", action="store_true", help=text("help.drill.incident.keep"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: steps among which an incident cannot be judged.
    """
    at = args.at if args.at is not None else args.steps * 2 // 3 + 1
    if args.at is None and args.steps < _LEAST:
        raise ConfigError(f"--steps must be at least {_LEAST} (or give --at as well), got {args.steps}")
    if at < LEAST_AT:
        raise ConfigError(f"--at must be at least {LEAST_AT}: what is usual must be known by then, got {at}")
    if args.steps - at + 1 < LEAST_AFTER:
        most = args.steps - LEAST_AFTER + 1
        raise ConfigError(f"--at must be at most {most} of {args.steps} steps, got {at}: what follows must be seen too")
    return Request(
        name=args.drill,
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        steps=args.steps,
        at=at,
        out=Path(args.out).expanduser() if args.out else None,
        keep=args.keep,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Train a healthy twin and the incidents, judge their records, show the score, and return the exit code.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from ...preflight.run_config import read_run_config
        from .drill import drill
        from .words import say

        outcome = drill(
            read_run_config(request.config, request.overrides),
            name=request.name,
            steps=request.steps,
            at=request.at,
            out=request.out,
            keep=request.keep,
            say=progress,
        )
    if request.as_json:
        print_json(outcome.as_dict(lambda one: say(one[0], "en", **one[1])), stdout)
    else:
        from .terminal import show

        show(outcome, stdout)
    return outcome.exit_code
