"""`llamafactory-obs timeline DIR_OR_FILE`: what the verb does with its words."""

from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json
from ..output_file import check_output, write_new
from ..texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        path: an output folder, its `obs/`, or a log.
        around: the step to look at; None for the whole run.
        width: columns of the terminal.
        metrics: columns to show instead of the usual ones.
        svg: a new file for the picture.
        as_json: one object on stdout.
    """

    path: Path
    around: int | None = None
    width: int = 80
    metrics: tuple[str, ...] = ()
    svg: Path | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("path", metavar="DIR_OR_FILE", help=text("help.timeline.path"))
    add("--around", type=int, metavar="STEP", help=text("help.timeline.around"))
    add("--metric", action="append", default=[], metavar="NAME", help=text("help.timeline.metric"))
    add("--width", type=int, metavar="N", help=text("help.timeline.width"))
    add("--svg", metavar="FILE", help=text("help.timeline.svg"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    if args.width is not None and not 60 <= args.width <= 400:
        raise ConfigError(f"--width must be between 60 and 400, got {args.width}")
    if args.around is not None and args.around < 0:
        raise ConfigError(f"--around must be a step from 0 on, got {args.around}")
    svg = check_output(Path(args.svg).expanduser(), option="--svg") if args.svg else None
    return Request(
        path=Path(args.path).expanduser(),
        around=args.around,
        width=args.width or _columns(),
        metrics=tuple(args.metric),
        svg=svg,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Show the timeline; the exit code is 0.

    Raises:
        ConfigError: no log there, or it has not that step or column.
    """
    with own_stdout() as stdout:
        from ..diagnosis.judge import judge
        from ..logs.read import read
        from .terminal import LABEL, RANGE, show
        from .timeline import make

        curves = read(request.path)
        about = {"around": request.around, "wanted": request.metrics, "findings": judge(curves).findings}
        timeline = make(curves, pieces=request.width - LABEL - RANGE - 4, **about)
        if request.svg is not None:
            from .picture import PIECES, svg

            write_new(request.svg, svg(make(curves, pieces=PIECES if request.around is None else 80, **about)))
    if request.as_json:
        print_json(timeline.as_dict(), stdout)
    else:
        from rich.console import Console

        show(timeline, Console(file=stdout, highlight=False, soft_wrap=True), request.width)
    return 0


def _columns() -> int:
    import shutil

    return min(max(shutil.get_terminal_size((80, 24)).columns, 60), 120)
