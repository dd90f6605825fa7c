"""`llamafactory-obs resume RUN.yaml`: what the verb does with its words."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import as_json, own_stdout


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
    add("config", metavar="RUN.yaml", help="the run config that LlamaFactory trains with")
    add("overrides", nargs="*", metavar="key=value", help="as for `train`")
    add(
        "--from",
        dest="start_from",
        metavar="CHECKPOINT",
        help="this one (a path, checkpoint-N or N) in place of the newest good one",
    )
    add("--exec", dest="execute", action="store_true", help="start the training, where it really continues")
    add(
        "--accept",
        action="store_true",
        help="with --exec: start it although something is lost, ignored or changed, e.g. as a warm start",
    )
    add("--json", action="store_true", help="one JSON object on stdout and nothing else there")
    parser.epilog = "Exit codes: 0 continues exactly as asked, 1 something is lost, ignored or not known, 2 wrong call."


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
        print(as_json(as_dict(plan), stdout, indent=2), file=stdout)
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
