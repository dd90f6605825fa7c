"""`llamafactory-obs replay DIR --step N`: what the verb does with its words."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json, progress
from ..output_file import check_output, write_new
from ..texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        output_dir: of the run.
        step: the optimizer step, from 1.
        checkpoint: folder, `checkpoint-N`, N or `start`; None takes the newest complete one before the step.
        rank: only the part of this rank.
        beside: ordinary batches to compare with.
        device: auto | cpu | cuda ...
        overrides: `key=value` over the run's config.
        show: the text of all samples.
        out: a file for the JSON object.
        as_json: one object on stdout.
    """

    output_dir: Path
    step: int
    checkpoint: str | None = None
    rank: int | None = None
    beside: int = 8
    device: str = "auto"
    overrides: tuple[str, ...] = ()
    show: bool = False
    out: Path | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("dir", metavar="DIR", help=text("help.replay.dir"))
    add("--step", type=int, required=True, metavar="N", help=text("help.replay.step"))
    add(
        "--checkpoint",
        metavar="CKPT",
        help=text("help.replay.checkpoint"),
    )
    add("--beside", type=int, default=8, metavar="K", help=text("help.replay.beside"))
    add("--rank", type=int, metavar="K", help=text("help.replay.rank"))
    add("--device", default="auto", help=text("help.common.device"))
    add(
        "--override",
        action="append",
        default=[],
        metavar="key=value",
        help=text("help.replay.override"),
    )
    add("--show", action="store_true", help=text("help.replay.show"))
    add("--out", metavar="FILE", help=text("help.replay.out"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    if args.step < 1:
        raise ConfigError(f"--step must be at least 1 (the first optimizer step), got {args.step}")
    if not 4 <= args.beside <= 64:
        raise ConfigError(f"--beside must be between 4 and 64, got {args.beside}")
    out = check_output(Path(args.out).expanduser(), option="--out") if args.out else None
    return Request(
        output_dir=Path(args.dir).expanduser(),
        step=args.step,
        checkpoint=args.checkpoint,
        rank=args.rank,
        beside=args.beside,
        device=args.device,
        overrides=tuple(args.override),
        show=args.show,
        out=out,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Replay, show, and return the exit code: 0 the batch is ordinary, 1 it is not, or it cannot be told.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from .replay import replay

        report = replay(
            request.output_dir,
            request.step,
            checkpoint=request.checkpoint,
            rank=request.rank,
            beside=request.beside,
            device=request.device,
            overrides=request.overrides,
            show_all=request.show,
            say=progress,
        )
    if request.out is not None:
        write_new(request.out, json.dumps(report.as_dict(), ensure_ascii=False, indent=2) + "\n")
    if request.as_json:
        print_json(report.as_dict(), stdout)
    else:
        from rich.console import Console

        from .terminal import show

        show(report, Console(file=stdout, highlight=False, soft_wrap=True))
    return report.exit_code
