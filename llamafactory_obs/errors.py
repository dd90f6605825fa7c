"""The one error type for bad input: one clear line (what, where, how to fix) and exit code 2."""


class ConfigError(Exception):
    """Bad input from the person at the keyboard.

    The message is one line: what is wrong, where, and how to fix it. Whoever owns the process turns it into exit
    code 2 without a traceback: the command line in `cli.py`, a training launch in `plugin/patches.py`.
    """
