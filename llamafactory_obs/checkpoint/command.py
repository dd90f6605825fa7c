"""`llamafactory-obs checkpoint DIR`: what the verb does with its words."""

import contextlib
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
        folder: an output_dir, or one checkpoint.
        load: load each one and make a forward pass.
        quick: headers and sizes only.
        base: the base model, in place of the recorded one.
        device: auto | cpu | cuda ...
        hashed: hash all files.
        as_json: one object on stdout.
    """

    folder: Path
    load: bool = True
    quick: bool = False
    base: str | None = None
    device: str = "auto"
    hashed: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("dir", metavar="DIR", help=text("help.checkpoint.dir"))
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--no-load", action="store_true", help=text("help.checkpoint.no-load"))
    depth.add_argument("--quick", action="store_true", help=text("help.checkpoint.quick"))
    add("--base", metavar="MODEL", help=text("help.checkpoint.base"))
    add("--device", default="auto", help=text("help.common.device"))
    add("--hash", action="store_true", help=text("help.checkpoint.hash"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    if args.quick and args.hash:
        raise ConfigError("--quick reads no content and --hash reads all of it: name one of them")
    base = str(Path(args.base).expanduser()) if args.base else None
    if base is not None:
        from ..identity.model import find_folder

        if find_folder(base, None, None) is None:
            raise ConfigError(f"--base {base}: no such folder, and no such model in the hub's cache on this machine")
    return Request(
        folder=Path(args.dir).expanduser(),
        load=not (args.no_load or args.quick),
        quick=args.quick,
        base=base,
        device=args.device,
        hashed=args.hash,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Examine, show, and return the exit code: 0 the newest checkpoint is good for what it is for, 1 it is not.

    Raises:
        ConfigError: there is nothing to examine, or torch does not know the device.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with own_stdout() as stdout:
        report = _examine(request)
    if request.as_json:
        print_json(report.as_dict(), stdout)
    else:
        from rich.console import Console

        from .show import show

        show(report, Console(file=stdout, highlight=False, soft_wrap=True))
    return 1 if report.flaw else 0


def _examine(request: Request):
    from .examine import Depth
    from .folder import examine_folder
    from .loading import Loader

    if not request.quick and _missing("torch"):
        raise ConfigError("torch is not installed, so the content cannot be read; --quick reads headers and sizes")
    if request.load and _missing("transformers", "peft"):
        raise ConfigError("transformers or peft is not installed, so nothing can be loaded; --no-load reads the files")
    with contextlib.ExitStack() as stack:
        loader = stack.enter_context(Loader(request.device)) if request.load else None
        return examine_folder(
            request.folder,
            base=request.base,
            depth=Depth(values=not request.quick, hashed=request.hashed),
            loader=loader,
            say=_progress(sys.stderr),
        )


def _missing(*names: str) -> list[str]:
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def _progress(stream):
    """One line that is written over, on a terminal; nothing elsewhere."""
    if not stream.isatty():
        return lambda line: None

    def say(line: str) -> None:
        stream.write(f"\r\x1b[K{line}" if line else "\r\x1b[K")
        stream.flush()

    return say
