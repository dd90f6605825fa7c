"""The parser of the command line: help in the language of the screen, laid out by cells; errors in one English line."""

import argparse
import re

from .plugin.names import did_you_mean
from .texts import text
from .texts.wrap import cells, wrapped

PROG = "llamafactory-obs"


class Parser(argparse.ArgumentParser):
    """Takes the words of its help from `texts/*/help.toml`, in the language at the time it is made and prints.

    Options are never abbreviated: a later version may add another one with the same beginning.
    """

    def __init__(self, **settings):
        super().__init__(**{"allow_abbrev": False, "formatter_class": _HelpFormatter} | settings, add_help=False)
        self._positionals.title = text("help.argparse.positionals")
        self._optionals.title = text("help.argparse.options")
        self.add_argument("-h", "--help", action="help", default=argparse.SUPPRESS, help=text("help.argparse.help"))

    def error(self, message: str):
        message = message.replace("the following arguments are required: VERB", "no verb given")
        self.exit(2, f"{PROG}: {message}; see `{self.prog} --help`\n")

    def _check_value(self, action, value):
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = did_you_mean(value, action.choices) or f" (known: {', '.join(action.choices)})"
            self.error(f"unknown {action.dest} {value!r}{hint}")
        super()._check_value(action, value)


class _HelpFormatter(argparse.HelpFormatter):
    """argparse's own counts characters and ends lines at spaces; what is Chinese is wrapped by cells here."""

    def _split_lines(self, text, width):
        return super()._split_lines(text, width) if text.isascii() else wrapped(text, width)

    def _fill_text(self, text, width, indent):
        if text.isascii():
            return super()._fill_text(text, width, indent)
        return "\n".join(wrapped(text, width, indent, indent))

    def _format_usage(self, usage, actions, groups, prefix):
        if prefix is not None:
            return super()._format_usage(usage, actions, groups, prefix)
        said = text("help.argparse.usage")
        room = "#" * cells(said)  # as many characters as the word has cells: the lines below it are indented by them
        return super()._format_usage(usage, actions, groups, room).replace(room, said, 1)

    def format_help(self):
        return re.sub("(?m)(?<=[\u3400-\u9fff]):(?=[\x1b\\[0-9;m]*$)", "：", super().format_help())  # of headings
