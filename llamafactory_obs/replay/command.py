"""`llamafactory-obs replay DIR --step N`: what the verb does with its words."""

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
    add("dir", metavar="DIR", help="the run's output_dir; `samples` must have been under its `callbacks:`")
    add("--step", type=int, required=True, metavar="N", help="the optimizer step, from 1")
    add(
        "--checkpoint",
        metavar="CKPT",
        help="run it on this one: a folder, N, or `start` (default: the newest complete one before the step)",
    )
    add("--beside", type=int, default=8, metavar="K", help="so many ordinary batches (default: 8, at least 4)")
    add("--rank", type=int, metavar="K", help="only the part of this rank (default: of all)")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 ... (default: auto: a GPU where there is room)")
    add(
        "--override",
        action="append",
        default=[],
        metavar="key=value",
        help="over the run's config, for a dataset_dir or model_name_or_path that moved; may be repeated",
    )
    add("--show", action="store_true", help="show the text of all samples, not only of those that carry it")
    add("--out", metavar="FILE", help="write the JSON object to a new file as well")
    add("--json", action="store_true", help="one JSON object on stdout and nothing else there")


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    if args.step < 1:
        raise ConfigError(f"--step must be at least 1 (the first optimizer step), got {args.step}")
    if not 4 <= args.beside <= 64:
        raise ConfigError(f"--beside must be between 4 and 64, got {args.beside}")
    out = Path(args.out).expanduser() if args.out else None
    if out is not None and out.exists():
        raise ConfigError(f"--out {out} exists and is not overwritten")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"--out {out}: no such folder {out.parent}")
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
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    if request.out is not None:
        try:
            with request.out.open("x", encoding="utf-8") as file:
                file.write(as_json(report.as_dict(), file, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"--out {request.out}: {error.strerror}") from None
    if request.as_json:
        print(as_json(report.as_dict(), stdout, indent=2), file=stdout)
    else:
        from rich.console import Console

        from .terminal import show

        show(report, Console(file=stdout, highlight=False, soft_wrap=True))
    return report.exit_code
