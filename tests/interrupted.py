"""A process that hears Ctrl-C, whatever started the tests."""

import signal
import subprocess


def start(command: list, **options) -> subprocess.Popen:
    """`subprocess.Popen`, stderr a text pipe. A test runner in the background ignores SIGINT, and so would it."""
    kept = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    finally:
        signal.signal(signal.SIGINT, kept)
