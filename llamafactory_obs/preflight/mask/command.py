"""`llamafactory-obs mask RUN.yaml`: what the verb does with its words."""

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import own_stdout, print_json
from ...texts import text
from ..result import ERROR, FAIL


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        samples: at most so many rows per split; None takes all.
        rows: how many of the worst rows are shown.
        html: where the page goes; None for none.
        confirm: accept what fails and may be accepted.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    samples: int | None = None
    rows: int = 3
    html: Path | None = None
    confirm: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--samples", type=int, metavar="N", help=text("help.mask.samples"))
    add("--rows", type=int, default=3, metavar="N", help=text("help.mask.rows"))
    add("--html", metavar="FILE", help=text("help.mask.html"))
    add("--confirm", action="store_true", help=text("help.mask.confirm"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense.
    """
    if args.samples is not None and args.samples < 1:
        raise ConfigError(f"--samples must be at least 1, got {args.samples}")
    if not 0 <= args.rows <= 1000:
        raise ConfigError(f"--rows must be between 0 and 1000, got {args.rows}")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        samples=args.samples,
        rows=args.rows,
        html=Path(args.html).expanduser() if args.html else None,
        confirm=args.confirm,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Judge, show, and return the exit code: 0 passed or does not apply, 1 failed or could not be judged.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        from ...charts import check_page, write_page
        from ..run_config import read_run_config
        from .gate import mask_gate

        if request.html is not None:
            check_page(request.html)
        config = read_run_config(request.config, request.overrides)
        report = mask_gate(config, request.samples, request.rows, request.confirm)
    gate = report.gate()
    if request.html is not None:
        from .page import page

        write_page(page(report, request.config.name), request.html)
    if request.as_json:
        print_json(report.as_dict(), stdout)
    else:
        from rich.console import Console

        from .terminal import show

        show(report, Console(file=stdout, highlight=False))
    return 1 if gate["status"] in (FAIL, ERROR) else 0
