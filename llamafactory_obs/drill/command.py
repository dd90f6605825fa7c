"""`llamafactory-obs drill NAME RUN.yaml`: the drills by name, each a package of its own with its own words."""

import functools
import importlib

#: name -> what it does; the package of that name has a `command` with `add_options`, `request` and `run`
DRILLS = {
    "resume": "Kill a short training of this config, resume it, and compare it with one that was never interrupted.",
}


def add_options(parser) -> None:
    """One sub-command for each drill."""
    names = parser.add_subparsers(title="drills", metavar="NAME", dest="drill", required=True)
    for name, help_text in DRILLS.items():
        one = names.add_parser(name, help=help_text, description=help_text, allow_abbrev=False)
        _command(name).add_options(one)


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
    return importlib.import_module(f".{name}.command", __package__)
