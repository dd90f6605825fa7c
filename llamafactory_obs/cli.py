"""The command line: one thin verb per function, no logic. Whatever a verb needs is imported when it runs.

Exit codes: 0 fine; 1 the thing checked is not fine; 2 the call or its input is wrong, said in one line on stderr.
"""

import argparse
import contextlib
import functools
import importlib
import sys

from . import __version__
from .errors import ConfigError
from .output import own_stdout, print_json
from .parser import PROG, Parser
from .pipes import NOBODY_READS, nobody_reads, silence
from .texts import speaking, text

#: verbs with a module of their own, which has `add_options(parser)`, `request(args)` and `run(request)`
_WITH_A_MODULE = {
    "preflight": ".preflight.command",
    "baseline": ".preflight.baseline.command",
    "mask": ".preflight.mask.command",
    "memory": ".preflight.memory.command",
    "overfit": ".preflight.overfit.command",
    "baseline-speed": ".preflight.speed.command",
    "checkpoint": ".checkpoint.command",
    "resume": ".resume.command",
    "replay": ".replay.command",
    "timeline": ".timeline.command",
    "watch": ".watch.command",
    "board": ".board.command",
    "control": ".control.command",
    "diagnose": ".diagnosis.command",
    "report": ".report.command",
    "compare": ".compare.command",
    "drill": ".drill.command",
}


def main(words: list[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    words = sys.argv[1:] if words is None else words
    try:
        code = _code(words)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None where the shell has closed it
                stream.flush()
        return code
    except BrokenPipeError as error:
        if not nobody_reads(error):
            raise
        silence()
        return NOBODY_READS


def _code(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except SystemExit as end:  # argparse: --help, or a wrong call
        if not isinstance(end.__context__, BrokenPipeError):
            return end.code
        silence()  # rich has done so for stdout, and ends with 1
        return NOBODY_READS
    except ConfigError as error:
        print(f"{PROG}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _shows_chinese() -> bool:
    """Has the terminal Chinese characters? One without them gets English."""
    try:
        "中".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _dispatch(words: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    if words[:1] == ["train"] and words[1:2] not in ([], ["-h"], ["--help"]):
        return _train(words[1:])  # all that follows is LlamaFactory's, also `--stage sft ...`
    with contextlib.nullcontext() if _shows_chinese() else speaking("en"):
        args = _arguments(words)
        with speaking("en") if getattr(args, "json", False) else contextlib.nullcontext():
            return args.run(args)


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = _parser(words)
    args, rest = parser.parse_known_args(words)
    later = [word for word in rest if "=" in word and not word.startswith("-")]  # overrides that follow an option
    if rest != later or (rest and not hasattr(args, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.overrides += later
    return args


def _parser(words: list[str] | None = None) -> argparse.ArgumentParser:
    """All verbs; the options only of those that `words` name (None: of all), for the others load nothing."""
    parser = Parser(prog=PROG, description=text("help.about"), epilog=text("help.epilog"))
    parser.add_argument("--version", action="version", version=f"{PROG} {__version__}", help=text("help.version"))
    verbs = parser.add_subparsers(title=text("help.verbs"), metavar="VERB", dest="verb", required=True)

    def verb(name: str, run, usage: str | None = None) -> argparse.ArgumentParser:
        about = text(f"help.{name}.about")
        sub = verbs.add_parser(name, help=about, description=about, usage=usage)
        sub.set_defaults(run=run)
        return sub

    train = verb("train", lambda args: _train([]), usage=f"{PROG} train RUN.yaml [key=value ...]")
    train.epilog = text("help.train.epilog")

    _add_probe(verb("probe", _probe))

    for name, module in _WITH_A_MODULE.items():
        one = verb(name, functools.partial(_run_command, module))
        if words is None or name in words:
            _command(module).add_options(one)

    _add_json(verb("callbacks", _callbacks))

    _add_json(verb("doctor", _doctor))

    init = verb("init", _init)
    init.add_argument("dir", nargs="?", default=".", metavar="DIR", help=text("help.init.dir"))
    init.add_argument("--force", action="store_true", help=text("help.init.force"))
    _add_json(init)
    return parser


def _add_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help=text("help.probe.dir"))
    add = parser.add_argument
    add("--watch", action="store_true", help=text("help.probe.watch"))
    add("--suite", metavar="FILE", help=text("help.probe.suite"))
    add("--backend", choices=("auto", "vllm", "local"), default="auto", help=text("help.probe.backend"))
    add("--endpoint", metavar="URL", help=text("help.probe.endpoint"))
    add("--device", default="auto", help=text("help.probe.device"))
    add("--model", metavar="PATH", help=text("help.probe.model"))
    add("--template", metavar="NAME", help=text("help.probe.template"))
    add("--tool-format", metavar="NAME", help=text("help.probe.tool-format"))
    add("--latest-only", action="store_true", help=text("help.probe.latest-only"))
    add("--no-baseline", action="store_true", help=text("help.probe.no-baseline"))
    add("--again", action="store_true", help=text("help.probe.again"))
    add("--poll", type=float, default=2.0, metavar="S", help=text("help.probe.poll"))
    add(
        "--patience",
        type=float,
        default=60.0,
        metavar="S",
        help=text("help.probe.patience"),
    )
    add("--copies", metavar="DIR", help=text("help.probe.copies"))
    add("--segment", type=int, default=0, help=argparse.SUPPRESS)  # of the training that started this process
    add("--parent", type=int, help=argparse.SUPPRESS)  # its pid
    add("--json", action="store_true", help=text("help.probe.json"))


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=text("help.common.json"))


def _train(words: list[str]) -> int:
    from .plugin.launch import train

    return train(words)


def _probe(args) -> int:
    from .probe.command import request, run

    return run(request(args))


def _command(module: str):
    return importlib.import_module(module, __package__)


def _run_command(module: str, args) -> int:
    return _command(module).run(_command(module).request(args))


def _callbacks(args) -> int:
    from .plugin import catalog

    return _show(args, catalog.collect, catalog.render)


def _doctor(args) -> int:
    from . import doctor

    return _show(args, doctor.examine, doctor.render, lambda result: 0 if result["live"] else 1)


def _init(args) -> int:
    from . import init

    return _show(args, lambda: init.write(args.dir, force=args.force), init.render)


def _show(args, compute, render, code=lambda result: 0) -> int:
    """Print what `compute` returns, as JSON or for people; whatever is printed on the way there goes to stderr."""
    with own_stdout():
        result = compute()
    if args.json:
        print_json(result, sys.stdout)
    else:
        print(render(result))
    return code(result)


if __name__ == "__main__":
    sys.exit(main())
