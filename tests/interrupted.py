"""A process that hears Ctrl-C, whatever started the tests, and whether it is gone."""

import contextlib
import signal
import subprocess

import psutil


def start(command: list, **options) -> subprocess.Popen:
    """`subprocess.Popen`, stderr a text pipe. A test runner in the background ignores SIGINT, and so would it."""
    kept = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    finally:
        signal.signal(signal.SIGINT, kept)


def lives(process: psutil.Process) -> bool:
    """Does it still run? A zombie, whose parent has not asked for its end, does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
