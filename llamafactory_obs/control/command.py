"""`llamafactory-obs control DIR --lr-scale 0.5`: what the verb does with its words."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import print_json, progress
from ..texts import text
from .order import LASTING, Order, option, parse


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        output_dir: of the run.
        order: what is asked for.
        queue: it waits for the next start of training.
        wait: seconds to wait for the answer.
        as_json: one object on stdout.
    """

    output_dir: Path
    order: Order
    queue: bool = False
    wait: float = 60.0
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("dir", metavar="DIR", help=text("help.control.dir"))
    add(
        "--lr-scale",
        type=float,
        metavar="F",
        help=text("help.control.lr-scale"),
    )
    add("--save", action="store_true", help=text("help.control.save"))
    add("--stop", action="store_true", help=text("help.control.stop"))
    add("--eval", action="store_true", help=text("help.control.eval"))
    for name in ("logging", "save", "eval"):
        add(f"--{name}-steps", type=int, metavar="N", help=text(f"help.control.{name}-steps"))
    add("--max-steps", type=int, metavar="N", help=text("help.control.max-steps"))
    add(
        "--queue",
        action="store_true",
        help=text("help.control.queue"),
    )
    add("--wait", type=float, default=60.0, metavar="S", help=text("help.control.wait"))
    add("--json", action="store_true", help=text("help.common.json"))
    parser.epilog = text("help.control.epilog")


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    names = (*LASTING, "eval", "save", "stop")
    given = {name: getattr(args, name) for name in names}
    order = parse({name: value for name, value in given.items() if value is not None and value is not False})
    if not 0 <= args.wait <= 86400:
        raise ConfigError(f"--wait must be a number of seconds from 0 to 86400, got {args.wait}")
    at_once = [option(name) for name in order.given() if name not in LASTING]
    if args.queue and at_once:
        raise ConfigError(f"--queue is for what lasts ({', '.join(map(option, LASTING))}), not for {' '.join(at_once)}")
    if not args.dir.strip():  # an unset variable of the shell; it would mean the current folder
        raise ConfigError("DIR is empty; give the run's output_dir")
    output_dir = _output_dir(Path(args.dir).expanduser())
    if not output_dir.is_dir():
        raise ConfigError(
            f"{'not a folder' if output_dir.exists() else 'no such folder'}: {output_dir} (DIR is output_dir)"
        )
    return Request(output_dir, order, args.queue, args.wait, args.json)


def _output_dir(folder: Path) -> Path:
    """The run's own folder, where its record or one of its checkpoints was named."""
    name = folder.absolute().name
    inside = name == "obs" or re.fullmatch(r"checkpoint-\d+", name)
    if not inside or (folder / "obs").is_dir():
        return folder
    return folder.parent if folder.name else folder.absolute().parent


def run(request: Request) -> int:
    """Command, wait, show, and return the exit code: 0 it is done, or queued; 1 it is not.

    Raises:
        ConfigError: nothing can be done with these words here.
    """
    from .send import queue, send
    from .terminal import render

    if request.queue:
        reply = queue(request.output_dir, request.order)
    else:
        reply = send(request.output_dir, request.order, request.wait, progress)
    if request.as_json:
        print_json(reply.to_dict(), sys.stdout)
    else:
        print(render(reply))
    return 0 if reply.status in ("done", "queued", "sent") else 1
