"""`llamafactory-obs preflight RUN.yaml`: what the verb does with its words."""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import as_json, own_stdout
from ..plugin.names import did_you_mean
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
    add("config", metavar="RUN.yaml", help="the run config that LlamaFactory would train with")
    add("overrides", nargs="*", metavar="key=value", help="as for `train`")
    add("--gate", action="append", metavar="NAME", help=f"only this one, may be repeated: {', '.join(GATES)}")
    add("--run-smoke", action="store_true", help="make the smoke run: the same config for 10 steps, in its own folder")
    add("--smoke", metavar="DIR", help="the smoke run's output_dir (default: obs: {smoke: ...} or OUTPUT_DIR-smoke)")
    add("--suite", metavar="FILE", help="the suite of the baseline (default: obs: {suite: ...} or the three probes)")
    add("--baseline", metavar="FILE", help="the recorded baseline, or a table filled in by hand")
    add("--endpoint", metavar="URL", help="of the vLLM server that stays up beside the training")
    add("--samples", type=int, metavar="N", help="mask: at most so many rows per split (default: all)")
    add("--confirm", action="append", metavar="GATE", help="accept what fails and may be accepted: mask")
    add("--device", default="auto", help="smoke: where checkpoint-10 is loaded: auto, cpu, cuda (default: auto)")
    add("--all", action="store_true", help="show every check, also those that passed")
    add("--json", action="store_true", help="one JSON object on stdout and nothing else there")


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
        found = preflight(config, request.wish, lambda text: print(text, file=sys.stderr, flush=True))
        keep(config, found.gates, english)
    if request.as_json:
        print(as_json(found.as_dict(), stdout, indent=2), file=stdout)
    else:
        from rich.console import Console

        from .screen import show

        words = ["llamafactory-cli", "train", str(request.config), *request.overrides]
        show(found, shlex.join(words), Console(file=stdout, highlight=False, emoji=False, markup=False), request.every)
    return 0 if found.passed else 1
