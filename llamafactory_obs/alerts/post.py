"""All webhooks of one run: who is told of what, and what is left when the process ends."""

import atexit
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..detect.endings import RANK
from ..record.schema import FOLDER, UNSENT
from .options import AlertOptions, Webhook
from .sender import Sender
from .spool import Letter, Spool

#: seconds that the end of training waits for what is unsent, and the end of the process for what was never tried
AT_END_S, AT_EXIT_S = 10.0, 3.0


class Post:
    """Sends events to the webhooks of a run, and first what its earlier processes have left unsent.

    Args:
        folder: the record's.
        options: of the run.
        run: what the run is called, where a webhook has no title for it.
        rank: of a second writer; it has a file of its own and leaves the older letters to the first rank.
    """

    def __init__(self, folder: Path, options: AlertOptions, run: str, rank: int | None = None):
        self._problems: list[str] = []
        self._spool = Spool(folder, self._problems.append, "" if rank is None else f".rank-{rank}")
        self._run = run
        self._senders = [Sender(webhook, self._spool) for webhook in options.webhooks]
        for letter in self._spool.load() if rank is None else []:
            self._forward(letter)
        atexit.register(self._at_exit)

    def send(self, event: dict) -> None:
        """Put one event into the post, for those who want it: on the disk first, then into the queue.

        Args:
            event: a row of `events.jsonl` in plain JSON values, secrets hidden.
        """
        for sender in self._senders:
            if wants(sender.webhook, event):
                sender.post(self._spool.add(sender.webhook.key, sender.webhook.title or self._run, event))

    def flush(self, seconds: float | None = None) -> None:
        """Wait until all is sent, not longer than this for all addresses together (None: `AT_END_S`)."""
        until = time.monotonic() + (AT_END_S if seconds is None else seconds)
        for sender in self._senders:
            sender.flush(until)

    def at_end(self) -> None:
        """The end of training: wait a while, and say what is left."""
        self.flush()
        left = self._spool.unsent
        if left:
            said = "1 webhook message is not sent" if left == 1 else f"{left} webhook messages are not sent"
            kept = f"{'it is' if left == 1 else 'they are'} kept in {FOLDER}/{UNSENT} and"
            self._problems.append(
                f"{said}: {kept} {'goes' if left == 1 else 'go'} out at the next start in this output folder. Check"
                " the address and the network"
            )

    def news(self) -> Iterator[str]:
        """What is to be said about the webhooks themselves; each once."""
        for sender in self._senders:
            while sender.news:
                yield sender.news.popleft()
        while self._problems:
            yield self._problems.pop(0)

    def _forward(self, letter: Letter) -> None:
        """To the address that it was written to; where that has changed, to the first of the same kind."""
        same = [sender for sender in self._senders if sender.webhook.key == letter.to]
        kind = letter.to.partition(":")[0]
        for sender in (same or [sender for sender in self._senders if sender.webhook.kind == kind])[:1]:
            sender.post(replace(letter, to=sender.webhook.key))

    def _at_exit(self) -> None:
        until = time.monotonic() + AT_EXIT_S
        for sender in self._senders:
            sender.flush(until, untried=True)


def wants(webhook: Webhook, event: dict) -> bool:
    """Is this event grave enough for the address? The end of an alert is as grave as the alert was."""
    life = event.get("alert") or {}
    level = life["level"] if life.get("state") == "resolved" else event["level"]
    return RANK[level] >= RANK[webhook.min_level]
