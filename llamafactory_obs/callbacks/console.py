"""What a person sees in the terminal: lines in the Trainer's own style; alerts stand out."""

import sys
import time

_COLOURS = {"info": "", "warn": "\033[1;33m", "error": "\033[1;31m"}
_NAMES = {"info": "INFO", "warn": "WARNING", "error": "ALERT"}


class Console:
    """Writes to stdout between the progress bar's redraws.

    Args:
        enabled: False on every rank but the first.
    """

    def __init__(self, enabled: bool):
        self._enabled = enabled

    def line(self, text: str, level: str = "info") -> None:
        """`[INFO|obs] 2026-01-31 12:00:00 >> text`; warnings and alerts in colour where the terminal has it."""
        if not self._enabled:
            return
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)  # what is quoted may move the cursor
        self._write(f"[{_NAMES[level]}|obs] {stamp} >> {text}", _COLOURS[level])

    def summary(self, step: int, numbers: dict) -> None:
        """One mapping a log step, like the Trainer's `{'loss': ...}`."""
        if self._enabled and numbers:
            shown = {name: f"{number:.4g}" if isinstance(number, float) else number for name, number in numbers.items()}
            self._write(str({"obs_step": step, **shown}), "")

    def _write(self, text: str, colour: str) -> None:
        try:
            from tqdm import tqdm

            tqdm.write(f"{colour}{text}\033[0m" if colour and sys.stdout.isatty() else text)
            sys.stdout.flush()
        except Exception:
            self._enabled = False  # the terminal is gone, or there never was one; the record stays
