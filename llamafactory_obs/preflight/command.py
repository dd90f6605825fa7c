"""`llamafactory-obs preflight RUN.yaml`: what the verb does with its words."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json, progress
from ..plugin.names import did_you_mean
from ..texts import text
from .wish import GATES, Wish

#: gates whose failures a person may accept
_CONFIRMABLE = ("mask",)


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        wish: which gates, and with what.
        every: show the checks that passed as well.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...]
    wish: Wish
    every: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--gate", action="append", metavar="NAME", help=text("help.preflight.gate", gates=", ".join(GATES)))
    add("--run-smoke", action="store_true", help=text("help.preflight.run-smoke"))
    add("--smoke", metavar="DIR", help=text("help.preflight.smoke"))
    add("--suite", metavar="FILE", help=text("help.preflight.suite"))
    add("--baseline", metavar="FILE", help=text("help.preflight.baseline"))
    add("--endpoint", metavar="URL", help=text("help.preflight.endpoint"))
    add("--samples", type=int, metavar="N", help=text("help.preflight.samples"))
    add("--confirm", action="append", metavar="GATE", help=text("help.preflight.confirm"))
    add("--device", default="auto", help=text("help.preflight.device"))
    add("--all", action="store_true", help=text("help.preflight.all"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: an unknown gate, or words that do not go together.
    """
    gates, confirm = tuple(args.gate or GATES), tuple(args.confirm or ())
    for option, given, known in (("--gate", gates, GATES), ("--confirm", confirm, _CONFIRMABLE)):
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(f"{option}: no gate {name!r} there{hint} (known: {', '.join(known)})")
    if args.samples is not None and args.samples < 1:
        raise ConfigError(f"--samples must be at least 1, got {args.samples}")
    unused = {"--run-smoke": args.run_smoke and "smoke" not in gates, "--confirm mask": confirm and "mask" not in gates}
    for option, wrong in unused.items():
        if wrong:
            raise ConfigError(f"{option} needs that gate; leave --gate out or name it too")
    wish = Wish(
        gates=gates,
        samples=args.samples,
        suite=_path(args.suite),
        evidence=_path(args.baseline),
        endpoint=args.endpoint,
        smoke=_path(args.smoke),
        run_smoke=args.run_smoke,
        confirm=confirm,
        device=args.device,
    )
    return Request(Path(args.config).expanduser(), tuple(args.overrides), wish, args.all, args.json)


def _path(word: str | None) -> Path | None:
    return Path(word).expanduser() if word else None


def run(request: Request) -> int:
    """Judge, show, and return the exit code: 0 all asked gates are green or do not apply, 1 one is not.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "WARN")
    from ..texts import remembering

    with own_stdout() as stdout, remembering() as english:
        from .gates import preflight
        from .kept import keep
        from .run_config import read_run_config

        config = read_run_config(request.config, request.overrides)
        found = preflight(config, request.wish, progress)
        keep(config, found.gates, english)
    if request.as_json:
        print_json(found.as_dict(), stdout)
    else:
        from rich.console import Console

        from .screen import show

        words = ["llamafactory-cli", "train", str(request.config), *request.overrides]
        show(found, shlex.join(words), Console(file=stdout, highlight=False, emoji=False, markup=False), request.every)
    return 0 if found.passed else 1
