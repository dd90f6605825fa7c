"""One attempt at one private copy, and what the ledger has to say about it."""

import time
from collections.abc import Callable

from ..errors import ConfigError
from ..pipes import nobody_reads
from .copies import Taken, discard, intact
from .ledger import Entry, Hopeless, Later, Ledger

#: The first pause after a failed probe is `poll_s` times two, then times four ...; at most this.
RETRY_MAX_S, LATER_MAX_S = 300.0, 60.0


class Attempts:
    """Probes private copies, one after the other.

    Args:
        probe, recorded, say, poll_s, retry_limit, again: see `Watcher`.

    Attributes:
        quiet_until: Unix seconds; nothing is probed before, because the server is down.
        away_since: since when it is down, Unix seconds; 0 where it is not.
        away_why: why, as the probe said.
    """

    def __init__(
        self,
        probe: Callable[[Taken], None],
        recorded: Callable[[Taken], bool],
        say: Callable[[str], None],
        poll_s: float,
        retry_limit: int,
        again: bool,
    ):
        self._probe, self._recorded, self._say = probe, recorded, say
        self._poll_s, self._retry_limit, self._again = poll_s, retry_limit, again
        self._laters = 0
        self.quiet_until, self.away_since, self.away_why = 0.0, 0.0, ""

    def make(self, ledger: Ledger, entry: Entry) -> None:
        """Probe one copy and write down what came of it.

        Raises:
            ConfigError: the call itself is wrong; no checkpoint's fault.
        """
        taken = entry.taken
        flaw = intact(taken)
        if flaw:
            give_up(ledger, self._say, taken, flaw)
            return
        try:
            if self._again or not self._recorded(taken):
                self._probe(taken)
        except Later as reason:
            self._wait_for_better(ledger, entry, _one_line(reason))
            return
        except Hopeless as reason:
            self._fail(ledger, entry, entry.attempt + 1, _one_line(reason))
            return
        except ConfigError:
            raise
        except Exception as error:
            if nobody_reads(error):  # no checkpoint's fault either
                raise
            self._count_failure(ledger, entry, f"{type(error).__name__}: {_one_line(error)}")
            return
        self._laters, self.away_since, self.away_why = 0, 0.0, ""
        flaw = intact(taken) if taken.linked else ""
        if flaw:  # it was asked while it changed: the answers are of no one model
            give_up(ledger, self._say, taken, flaw)
            return
        ledger.put("done", taken.name, taken.step, taken=taken)
        discard(taken)

    def _wait_for_better(self, ledger: Ledger, entry: Entry, why: str) -> None:
        self.away_since = self.away_since or time.time()
        self._laters += 1
        self.quiet_until = time.time() + min(LATER_MAX_S, self._poll_s * 2**self._laters)
        if why != self.away_why:  # once, not once a minute
            self.away_why = why
            ledger.put("retry", entry.key.name, entry.key.step, why, entry.taken, attempt=entry.attempt)
            self._say(f"{entry.key.name} has to wait: {why}")

    def _count_failure(self, ledger: Ledger, entry: Entry, why: str) -> None:
        name, step, attempt = entry.key.name, entry.key.step, entry.attempt + 1
        if attempt >= self._retry_limit:
            self._fail(ledger, entry, attempt, f"{why} ({attempt} times)")
            return
        not_before = time.time() + min(RETRY_MAX_S, self._poll_s * 2**attempt)
        ledger.put("retry", name, step, why, entry.taken, attempt=attempt, not_before=not_before)
        self._say(f"{name} failed ({attempt} of {self._retry_limit}), later again: {why}")

    def _fail(self, ledger: Ledger, entry: Entry, attempt: int, why: str) -> None:
        ledger.put("failed", entry.key.name, entry.key.step, why, entry.taken, attempt=attempt)
        discard(entry.taken)
        self._say(f"{entry.key.name} failed, given up: {why}")


def give_up(ledger: Ledger, say: Callable[[str], None], taken: Taken, flaw: str) -> None:
    """The copy is no good. Where the checkpoint is still there it is taken again."""
    ledger.put("missed", taken.name, taken.step, f"its private copy: {flaw}", taken)
    discard(taken)
    say(f"{taken.name} missed: its private copy: {flaw}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
