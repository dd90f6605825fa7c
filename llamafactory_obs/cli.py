"""The command line: one thin verb per function, no logic. Whatever a verb needs is imported when it runs.

Exit codes: 0 fine; 1 the thing checked is not fine; 2 the call or its input is wrong, said in one line on stderr.
"""

import argparse
import contextlib
import functools
import importlib
import os
import sys

from . import __version__
from .errors import ConfigError
from .output import as_json, own_stdout
from .plugin.names import did_you_mean
from .texts import speaking

PROG = "llamafactory-obs"

#: verbs with a module of their own: name, module (`add_options(parser)`, `request(args)`, `run(request)`), what it does
_WITH_A_MODULE = (
    (
        "preflight",
        ".preflight.command",
        "Three gates before the long run: baseline recorded, mask right, smoke run sound.",
    ),
    (
        "baseline",
        ".preflight.baseline.command",
        "Score the untuned base model on a suite, through vLLM or locally, and record it for the first gate.",
    ),
    (
        "mask",
        ".preflight.mask.command",
        "Show which tokens of the data would be in the loss, and what is wrong with the mask.",
    ),
    (
        "memory",
        ".preflight.memory.command",
        "Estimate the memory of a run line by line, each with its formula.",
    ),
    (
        "overfit",
        ".preflight.overfit.command",
        "The single-batch test: can model and pipeline learn one batch by heart?",
    ),
    (
        "baseline-speed",
        ".preflight.speed.command",
        "Measure the speed in layers: ready batch, real data loader, logging, evaluation, saving; say what each costs.",
    ),
    (
        "checkpoint",
        ".checkpoint.command",
        "Say what each checkpoint is good for, by its content: resumes exactly, warm start only, serves, or broken.",
    ),
    (
        "resume",
        ".resume.command",
        "Say what LlamaFactory will do with this config and its folder, what a resume loses, how to go on; start it.",
    ),
    (
        "replay",
        ".replay.command",
        "Rebuild the batch of a recorded step and run it on a checkpoint: does the anomaly come with the data?",
    ),
    (
        "timeline",
        ".timeline.command",
        "Show the events and metrics of a run or a log on one step axis.",
    ),
    (
        "watch",
        ".watch.command",
        "Watch a run on a live terminal screen: curves, machine, mask, probes, alerts, time and cost to go.",
    ),
    (
        "board",
        ".board.command",
        "Serve a local web page, live and read-only, that shows one or several runs side by side.",
    ),
    (
        "control",
        ".control.command",
        "Command a job that runs: another learning rate, a save, a stop, an evaluation, more logging.",
    ),
    (
        "diagnose",
        ".diagnosis.command",
        "Read a run or a log and say what shape it has, whether to kill or keep it, why, and what to change.",
    ),
    (
        "report",
        ".report.command",
        "The record sheet of a run, every line measured: terminal, Markdown, HTML; notes; a bundle with hashes.",
    ),
    (
        "compare",
        ".compare.command",
        "Compare runs: what differs, where their curves part beyond noise, which is better on what evidence.",
    ),
    (
        "drill",
        ".drill.command",
        "Make an incident on purpose in short trainings of this config, and see whether it is told.",
    ),
)


def main(words: list[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    words = sys.argv[1:] if words is None else words
    try:
        try:
            code = _dispatch(words)
        except SystemExit as end:  # argparse: --help, or a wrong call
            code = end.code
        if sys.stdout is not None:  # None where the shell has closed it
            sys.stdout.flush()
        return code
    except ConfigError as error:
        print(f"{PROG}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `... | head`: nobody reads on; keep the interpreter's last flush quiet as well
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


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
    parser = _parser()
    args, rest = parser.parse_known_args(words)
    later = [word for word in rest if "=" in word and not word.startswith("-")]  # overrides that follow an option
    if rest != later or (rest and not hasattr(args, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.overrides += later
    with contextlib.nullcontext() if not getattr(args, "json", False) and _shows_chinese() else speaking("en"):
        return args.run(args)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str):
        message = message.replace("the following arguments are required: VERB", "no verb given")
        self.exit(2, f"{PROG}: {message}; see `{self.prog} --help`\n")

    def _check_value(self, action, value):
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = did_you_mean(value, action.choices) or f" (known: {', '.join(action.choices)})"
            self.error(f"unknown {action.dest} {value!r}{hint}")
        super()._check_value(action, value)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROG,
        description="The flight recorder, the pre-flight check and the test pilot for LlamaFactory fine-tuning runs.",
        epilog="Exit codes: 0 fine, 1 the thing checked is not fine, 2 the call or its input is wrong.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)

    def verb(name: str, run, help_text: str, usage: str | None = None) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=help_text, description=help_text, usage=usage, allow_abbrev=False)
        sub.set_defaults(run=run)
        return sub

    train = verb(
        "train",
        lambda args: _train([]),
        "Train with LlamaFactory's own launcher and our keys, without relying on automatic loading.",
        usage=f"{PROG} train RUN.yaml [key=value ...]",
    )
    train.epilog = "Everything after `train` is handed to LlamaFactory as it is, torchrun and Ray included."

    probe = verb(
        "probe", _probe, "Ask each checkpoint the fixed probes and say what broke, what got better, what regressed."
    )
    _add_probe(probe)

    for name, module, help_text in _WITH_A_MODULE:
        command = importlib.import_module(module, __package__)
        command.add_options(verb(name, functools.partial(_run_command, command), help_text))

    callbacks = verb("callbacks", _callbacks, "List the names for `callbacks:`, their options and what they log.")
    _add_json(callbacks)

    doctor = verb("doctor", _doctor, "Say what is installed, whether the plug is live here, and what is missing.")
    _add_json(doctor)

    init = verb("init", _init, "Write the commented run configs and the probes into a folder.")
    init.add_argument("dir", nargs="?", default=".", metavar="DIR", help="where to write (default: the current folder)")
    init.add_argument("--force", action="store_true", help="overwrite files that exist; without it they are kept")
    _add_json(init)
    return parser


def _add_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the run's output_dir, or one checkpoint-N in it")
    add = parser.add_argument
    add("--watch", action="store_true", help="go on until the training has ended and all checkpoints are probed")
    add("--suite", metavar="FILE", help="your own suite (docs/suite.md); default: the three fixed probes")
    add("--backend", choices=("auto", "vllm", "local"), default="auto", help="what generates (default: auto)")
    add("--endpoint", metavar="URL", help="of a running vLLM server (default: http://localhost:8000/v1)")
    add("--device", default="auto", help="of --backend local: auto, cpu, cuda, cuda:1 ... (default: auto)")
    add("--model", metavar="PATH", help="the base model (default: what the run's record or the adapter says)")
    add("--template", metavar="NAME", help="LlamaFactory's template, or chat (default: the run's own)")
    add("--tool-format", metavar="NAME", help="how calls are written (default: the template's)")
    add("--latest-only", action="store_true", help="of several waiting checkpoints probe only the newest")
    add("--no-baseline", action="store_true", help="do not ask the untuned base model")
    add("--again", action="store_true", help="probe once more what is probed already")
    add("--poll", type=float, default=2.0, metavar="S", help="seconds between two looks at the folder (default: 2)")
    add(
        "--patience",
        type=float,
        default=60.0,
        metavar="S",
        help="without --watch: wait so long for a server (default: 60)",
    )
    add("--copies", metavar="DIR", help="where private copies go; the vLLM server must see it (default: DIR/obs/probe)")
    add("--segment", type=int, default=0, help=argparse.SUPPRESS)  # of the training that started this process
    add("--parent", type=int, help=argparse.SUPPRESS)  # its pid
    add("--json", action="store_true", help="one JSON object per result and line on stdout, and nothing else there")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else there")


def _train(words: list[str]) -> int:
    from .plugin.launch import train

    return train(words)


def _probe(args) -> int:
    from .probe.command import request, run

    return run(request(args))


def _run_command(command, args) -> int:
    return command.run(command.request(args))


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
    print(as_json(result, sys.stdout, indent=2) if args.json else render(result))
    return code(result)


if __name__ == "__main__":
    sys.exit(main())
