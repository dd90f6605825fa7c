"""Sends to one address from a thread of its own: in order, with patience, and never in the training's way."""

import contextlib
import itertools
import logging
import random
import threading
import time
from collections import deque
from urllib.parse import urlsplit

from ..identity.redact import hide
from .options import Webhook, secrets_of
from .services import PER_MINUTE, WAIT_S, Answer, answer, request
from .spool import Letter, Spool

#: seconds for a connection, and for each read and write
_CONNECT_S, _IO_S = 5.0, 10.0
#: of an answer so much is read, and for so long: a service's own has less than 1 KiB
_ANSWER_BYTES, _ANSWER_S = 64 << 10, 15.0
#: waits between tries: the first, and the longest; each by a random factor from 0.5 to 1.5
_FIRST_S, _LONGEST_S = 1.0, 60.0
#: failures in a row after which it is said
_SAY_AFTER = 3
#: letters in memory; more stay in the spool until the next start
ROOM = 1000


class Sender:
    """The thread of one webhook.

    Letters that wait together go out as one message. After a failure that may pass (no connection, 5xx, 429) the same
    letters are tried again, with growing waits; what the service refuses is let go, and said once. An address that
    refuses everything (401, 403, 404, a wrong signature) is given up for this process; its letters stay in the spool.

    Args:
        webhook: where to.
        spool: told when letters are done with.

    Attributes:
        news: what the training's own thread should say of the address; texts without the address in them.
        off: the address was given up.
    """

    def __init__(self, webhook: Webhook, spool: Spool):
        self.webhook, self._spool = webhook, spool
        self._hidden = frozenset(secrets_of(webhook))
        self.news: deque[str] = deque()
        self._change = threading.Condition()
        self._waiting: deque[Letter] = deque()
        self._tried = 0  # letters at the head of the queue that have been tried
        self._thread: threading.Thread | None = None
        self._times: deque[float] = deque()
        self._random = random.Random()  # the global one belongs to the training
        self._refused = False
        self._full = False
        self.off = False

    def post(self, letter: Letter) -> None:
        """Queue one letter; returns at once."""
        with self._change:
            if self.off:
                return
            if len(self._waiting) >= ROOM:
                if not self._full:
                    self._full = True
                    self.news.append(
                        f"{self.webhook.kind} webhook: {ROOM} messages wait; more go out at the next start"
                    )
                return
            self._waiting.append(letter)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="llamafactory-obs-webhook", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def flush(self, until: float, untried: bool = False) -> int:
        """Wait until everything is sent, not longer than to this time of `time.monotonic()`.

        Args:
            untried: do not wait for what has been tried already.

        Returns:
            The number of letters that are still unsent.
        """
        with self._change:
            while self._waiting and not self.off and not (untried and self._tried >= len(self._waiting)):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._change.wait(left)
            return len(self._waiting)

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            import httpx  # only where there is something to send

            home = urlsplit(self.webhook.url).hostname in ("localhost", "127.0.0.1", "::1")
            timeout = httpx.Timeout(_IO_S, connect=_CONNECT_S)
            with _silent(logging.getLogger("httpx")), httpx.Client(timeout=timeout, trust_env=not home) as client:
                self._serve(client, httpx.HTTPError)
        except Exception as error:
            self._give_up(f"{type(error).__name__}")

    def _serve(self, client, transport_error: type[Exception]) -> None:
        failures = 0
        while not self.off:
            with self._change:
                while not self._waiting:
                    self._change.wait()
            self._keep_pace()
            letters = self._next()
            events = [one.event | {"id": one.id} for one in letters]
            message = request(self.webhook, letters[0].run, events, time.time())
            said = self._try(client, transport_error, message)
            self._times.append(time.monotonic())
            failures = failures + 1 if said.outcome in ("retry", "limited") else 0
            self._settle(said, letters[: message.count])
            if failures == _SAY_AFTER:
                still = "it is tried on while the run lives"
                self.news.append(f"{self.webhook.kind} webhook: {failures} tries failed ({said.why}); {still}")
            if failures and not self.off:
                time.sleep(self._pause(said, failures))

    def _next(self) -> list[Letter]:
        """What waits, the oldest first; one message is of one run."""
        with self._change:
            run = self._waiting[0].run
            return list(itertools.takewhile(lambda letter: letter.run == run, self._waiting))

    def _try(self, client, transport_error: type[Exception], message) -> Answer:
        headers = message.headers | {"Accept-Encoding": "identity"}  # what is packed may be any size
        try:
            with client.stream("POST", message.url, content=message.content, headers=headers) as reply:
                content = self._beginning(reply)
                return answer(
                    self.webhook, reply.status_code, {k.lower(): v for k, v in reply.headers.items()}, content
                )
        except transport_error as error:
            return Answer("retry", _root(error))  # its text may hold the address

    def _beginning(self, reply) -> bytes:
        """The beginning of an answer, without the address and the secret, which it may quote."""
        content, until = b"", time.monotonic() + _ANSWER_S
        for part in reply.iter_raw():
            content += part
            if len(content) >= _ANSWER_BYTES or time.monotonic() > until:
                break
        return hide(content[:_ANSWER_BYTES].decode("utf-8", "replace"), self._hidden).encode()

    def _settle(self, said: Answer, letters: list[Letter]) -> None:
        """What the answer means for the letters of this message."""
        if said.outcome in ("sent", "refused"):
            self._spool.done(letters)
        with self._change:
            self._tried = len(letters)
            if said.outcome in ("sent", "refused"):
                for _ in letters:
                    self._waiting.popleft()
                self._tried = 0
            self._change.notify_all()
        if said.outcome == "refused" and not self._refused:
            self._refused = True
            self.news.append(f"{self.webhook.kind} webhook refused a message and it is not sent again ({said.why})")
        if said.outcome == "off":
            self._give_up(said.why)

    def _give_up(self, why: str) -> None:
        with self._change:
            self.off = True
            self._change.notify_all()
        self.news.append(
            f"{self.webhook.kind} webhook is off for this run ({why}); check its url and secret. What is unsent is kept"
            " and goes out at the next start"
        )

    def _pause(self, said: Answer, failures: int) -> float:
        """Seconds until the next try."""
        longest = min(_LONGEST_S, _FIRST_S * 2 ** min(failures - 1, 10)) * self._random.uniform(0.5, 1.5)
        if said.outcome != "limited":
            return longest
        return max(longest, WAIT_S[self.webhook.kind] if said.wait_s is None else said.wait_s)  # it may say 0

    def _keep_pace(self) -> None:
        """Not more messages a minute than the service takes; what comes meanwhile joins the next one."""
        while self._times and time.monotonic() - self._times[0] > 60:
            self._times.popleft()
        if len(self._times) >= PER_MINUTE[self.webhook.kind]:
            time.sleep(max(0.0, 60 - (time.monotonic() - self._times[0])))


def _root(error: BaseException) -> str:
    """What kind of failure it is, and what is behind it: `ConnectError, SSLCertVerificationError`."""
    first = last = error
    while last.__cause__ or last.__context__:
        last = last.__cause__ or last.__context__
    names = (type(first).__name__, type(last).__name__)
    return ", ".join(dict.fromkeys(names))


@contextlib.contextmanager
def _silent(logger: logging.Logger):
    """httpx logs each address that it calls, token and all: not those of this thread."""
    mine = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != mine

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)
