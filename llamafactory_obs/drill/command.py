"""`llamafactory-obs drill NAME RUN.yaml`: the drills by name, each in a package that has its words."""

import functools
import importlib

#: name -> its package here, and what it does; the package has a `command` with `add_options`, `request` and `run`
DRILLS = {
    "resume": (
        "resume",
        "Kill a short training of this config, resume it, and compare it with one that was never interrupted.",
    ),
    "oom": ("incident", "One over-long sample that does not fit: is memory running out named with its cause?"),
    "spike": ("incident", "The learning rate times 20 on the way: is the change of the rate named?"),
    "labels": ("incident", "One batch whose labels are shifted by one: is the batch named?"),
    "throughput": ("incident", "A large file written synchronously in every step: is the disk named?"),
    "nan": ("incident", "One infinite gradient: is the layer that it came from named?"),
    "lora_off": ("incident", "An adapter that takes no part: is it said that nothing is trained?"),
    "all": ("incident", "All six incidents beside one healthy twin, and the table of scores."),
}


def add_options(parser) -> None:
    """One sub-command for each drill."""
    names = parser.add_subparsers(title="drills", metavar="NAME", dest="drill", required=True)
    for name, (_, help_text) in DRILLS.items():
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
    return importlib.import_module(f".{DRILLS[name][0]}.command", __package__)
