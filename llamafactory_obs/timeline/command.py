"""`llamafactory-obs timeline DIR_OR_FILE`: what the verb does with its words."""

from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import as_json, own_stdout


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
    add(
        "path", metavar="DIR_OR_FILE", help="the run's output_dir, or a log (trainer_state.json, trainer_log.jsonl ...)"
    )
    add("--around", type=int, metavar="STEP", help="look closely at this step (default: the whole run)")
    add("--metric", action="append", default=[], metavar="NAME", help="show this column; may be repeated")
    add("--width", type=int, metavar="N", help="columns to use (default: those of the terminal, at most 120)")
    add("--svg", metavar="FILE", help="write a picture to a new file as well")
    add("--json", action="store_true", help="one JSON object on stdout and nothing else there")


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    if args.width is not None and not 60 <= args.width <= 400:
        raise ConfigError(f"--width must be between 60 and 400, got {args.width}")
    if args.around is not None and args.around < 0:
        raise ConfigError(f"--around must be a step from 0 on, got {args.around}")
    svg = Path(args.svg).expanduser() if args.svg else None
    if svg is not None and svg.exists():
        raise ConfigError(f"--svg {svg} exists and is not overwritten")
    if svg is not None and not svg.parent.is_dir():
        raise ConfigError(f"--svg {svg}: no such folder {svg.parent}")
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

            picture = svg(make(curves, pieces=PIECES if request.around is None else 80, **about))
            try:
                with request.svg.open("x", encoding="utf-8") as file:
                    file.write(picture)
            except OSError as error:
                raise ConfigError(f"--svg {request.svg}: {error.strerror}") from None
    if request.as_json:
        print(as_json(timeline.as_dict(), stdout, indent=2), file=stdout)
    else:
        from rich.console import Console

        show(timeline, Console(file=stdout, highlight=False, soft_wrap=True), request.width)
    return 0


def _columns() -> int:
    import shutil

    return min(max(shutil.get_terminal_size((80, 24)).columns, 60), 120)
