"""`llamafactory-obs drill NAME RUN.yaml`: the drills by name, each in a package that has its words."""

import functools
import importlib

from ..texts import text

#: name -> its package here, which has a `command` with `add_options`, `request` and `run`
DRILLS = {
    "resume": "resume",
    "oom": "incident",
    "spike": "incident",
    "labels": "incident",
    "throughput": "incident",
    "nan": "incident",
    "lora_off": "incident",
    "all": "incident",
}


def add_options(parser) -> None:
    """One sub-command for each drill."""
    names = parser.add_subparsers(title=text("help.drill.drills"), metavar="NAME", dest="drill", required=True)
    for name in DRILLS:
        about = text(f"help.drill.{name}.about")
        _command(name).add_options(names.add_parser(name, help=about, description=about))


def request(args) -> functools.partial:
    """The drill's own `run` with its checked words.

    Raises:
        ConfigError: words that make no sense.
    """
    command = _command(args.drill)
    return functools.partial(command.run, command.request(args))


def run(request: functools.partial) -> int:
    """Do it and return the exit code: 0 fine, 1 not, 2 it could not be judged."""
    return request()


def _command(name: str):
    return importlib.import_module(f".{DRILLS[name]}.command", __package__)
