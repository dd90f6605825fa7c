"""`llamafactory-obs resume RUN.yaml`: what the verb does with its words."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json
from ..texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        start_from: a checkpoint to use whatever the others are; None for the newest good one.
        execute: start the training.
        accept: start it although something is lost, ignored or changed.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    start_from: str | None = None
    execute: bool = False
    accept: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.resume.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add(
        "--from",
        dest="start_from",
        metavar="CHECKPOINT",
        help=text("help.resume.from"),
    )
    add("--exec", dest="execute", action="store_true", help=text("help.resume.exec"))
    add(
        "--accept",
        action="store_true",
        help=text("help.resume.accept"),
    )
    add("--json", action="store_true", help=text("help.common.json"))
    parser.epilog = text("help.resume.epilog")


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: words that make no sense together.
    """
    if args.accept and not args.execute:
        raise ConfigError("--accept is for --exec: without it nothing is started")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        start_from=args.start_from,
        execute=args.execute,
        accept=args.accept,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Say what would happen and what to do, and return the exit code; with `--exec` start it in this process's place.

    Raises:
        ConfigError: nothing can be said with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from ..preflight.run_config import read_run_config
        from .plan import make_plan

        config = read_run_config(request.config, request.overrides)
        if not config.given.get("do_train"):
            raise ConfigError(f"{request.config}: do_train is not true: there is no training that could be resumed")
        plan = make_plan(config, request.start_from)
        from .report import as_dict
        from .show import show
    if request.as_json:
        print_json(as_dict(plan), stdout)
    else:
        show(plan, stdout)
    if not request.execute:
        return plan.exit_code
    return _start(plan, request)


def _start(plan, request: Request) -> int:
    """Start it, or say why not. Does not come back where it is started."""
    from ..texts import text
    from .point import GRAVE

    if not plan.can_start:
        opened = plan.launch is not None and plan.launch.open
        print(text("resume.head.open" if opened else "resume.head.impossible"), file=sys.stderr)
        return 1
    if not plan.may_start and not request.accept:
        count = sum(point.level == GRAVE for point in plan.points)
        print(text("resume.head.refused", count=count), file=sys.stderr)
        return 1
    print(text("resume.head.starting", command=plan.launch.text), file=sys.stderr)
    plan.launch.start(to_stderr=request.as_json)
    return 1
