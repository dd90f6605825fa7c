"""From the verb to the job and back: one command file, one answer file."""

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from .. import texts
from ..errors import ConfigError
from .folder import ANSWERS, INBOX, control_folder, read_file, write_file
from .order import Order, parse
from .presence import Seen, look, machine

Status = Literal["done", "partly", "refused", "no_job", "no_answer", "gone", "queued", "sent"]
#: seconds between two looks for the answer, and for the job
_POLL, _LOOK = 0.05, 1.0


@dataclass
class Reply:
    """What has become of a command.

    Attributes:
        status: `done`, `partly`, `refused`: the job has answered; `no_job`: none is running; `no_answer`: it runs and
            has not answered in time; `gone`: it ended first; `queued`: it waits for the next start; `sent`: without
            waiting.
        text: the same for people, with what to do.
        step: the step at whose end it was carried out.
        results: of each part: `what`, `status` (done, asked, unchanged, refused), `text`.
        file: the command, where it still lies there.
    """

    dir: str
    status: Status
    text: str
    order: dict
    id: str | None = None
    step: int | None = None
    results: list[dict] = field(default_factory=list)
    job: dict = field(default_factory=dict)
    file: str | None = None

    def to_dict(self) -> dict:
        """For `--json`."""
        return asdict(self)


def send(output_dir: Path, order: Order, wait: float, say: Callable[[str], None]) -> Reply:
    """Command the job that runs.

    Args:
        wait: seconds to wait for its answer; 0: do not wait.
        say: takes a line about the waiting.

    Raises:
        ConfigError: the folder cannot be written to.
        KeyboardInterrupt: Ctrl-C while it waits; the command is taken back if the job has not taken it yet.
    """
    folder = control_folder(output_dir)
    seen = look(folder)
    reply = Reply(str(output_dir), "no_job", "", order.given(), job=seen.job)
    if seen.state != "running":
        reply.text = texts.text("control.no_job", folder=output_dir, why=_why_none(seen))
        return reply
    reply.id = _new_id()
    file = folder / INBOX / f"{reply.id}.json"
    _write(file, order, queue=False)
    reply.file = str(file)
    if wait == 0:
        reply.status, reply.text = "sent", texts.text("control.sent")
        return reply
    try:
        _await(folder, reply, file, wait, say)
    except KeyboardInterrupt:
        say(_given_up(file))
        raise
    return reply


def queue(output_dir: Path, order: Order) -> Reply:
    """Leave a command for the next start of training.

    Raises:
        ConfigError: a job is running, or the folder cannot be written to.
    """
    folder = control_folder(output_dir)
    if look(folder).state == "running":
        raise ConfigError(f"--queue: a job is running in {output_dir} and would not see it; leave --queue out")
    before = _queued(folder / INBOX)
    id = _new_id()
    file = folder / INBOX / f"{id}.json"
    _write(file, order, queue=True)
    text = texts.text("control.queued")
    if before:
        text += texts.text("control.queued_after", names=", ".join(before))
    return Reply(
        str(output_dir),
        "queued",
        texts.text("control.take_back", text=text, file=file),
        order.given(),
        id,
        file=str(file),
    )


def _queued(inbox: Path) -> list[str]:
    """The commands that wait for the next start, in words: a factor that is queued twice is multiplied twice."""
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(name for name in os.listdir(inbox) if name.endswith(".json") and name[0] != ".")[:100]:
            with contextlib.suppress(OSError, ValueError, ConfigError):
                content = read_file(inbox / name)
                found += [parse(content.get("order")).words()] if content.get("queue") is True else []
    return found


def _given_up(file: Path) -> str:
    """The end of a wait that was broken off."""
    try:
        file.unlink()
        return texts.text("control.taken_back")
    except FileNotFoundError:
        return texts.text("control.job_has_it")
    except OSError as error:
        return texts.text("control.not_taken_back", error=error.strerror)


def _await(folder: Path, reply: Reply, file: Path, wait: float, say: Callable[[str], None]) -> None:
    """Fill in the reply."""
    answer_file = folder / ANSWERS / f"{reply.id}.json"
    start = looked = time.monotonic()
    told, answer = False, {}
    while True:
        alive = True
        if time.monotonic() - looked >= _LOOK:
            looked = time.monotonic()
            alive = look(folder).state == "running"  # before the answer is read: an answer that it left is not missed
        with contextlib.suppress(OSError, ValueError):
            answer = read_file(answer_file)
        over = time.monotonic() - start > wait
        if answer.get("state") == "finished" or not alive or over:
            break
        if not told and time.monotonic() - start > 2:
            told = True
            say(texts.text("control.waiting", wait=wait))
        time.sleep(_POLL)
    reply.step, reply.results = answer.get("step"), answer.get("results", [])
    if not file.exists():
        reply.file = None
    if answer.get("state") == "finished":
        reply.status, reply.text = _judge(answer)
    elif not alive:
        with contextlib.suppress(OSError):
            file.unlink()
        reply.file = None
        done = texts.text("control.took", step=reply.step) if answer else texts.text("control.it")
        reply.status, reply.text = "gone", texts.text("control.gone", done=done, why=_why_none(look(folder)))
    else:
        reply.status, reply.text = "no_answer", _why_late(answer, reply, wait)


def _judge(answer: dict) -> tuple[Status, str]:
    if answer.get("refused"):
        return "refused", texts.text("control.not_carried_out", why=answer["refused"])
    good = [result for result in answer["results"] if result["status"] != "refused"]
    status: Status = "done" if len(good) == len(answer["results"]) else ("partly" if good else "refused")
    key = f"control.{status}_at" if answer["step"] else f"control.{status}_first"
    return status, texts.text(key, step=answer["step"])


def _why_late(answer: dict, reply: Reply, wait: float) -> str:
    if answer:
        text = texts.text("control.taken", step=reply.step, wait=wait)
        return texts.text("control.long", text=text)
    pid, host = reply.job.get("pid"), reply.job.get("host")
    text = texts.text("control.running", pid=pid, host=host, wait=wait)
    text += texts.text("control.long_step")
    if reply.file is None:
        return texts.text("control.has_taken", text=text)
    return texts.text("control.stays", text=text, file=reply.file)


def _why_none(seen: Seen) -> str:
    if seen.state == "never":
        return texts.text("control.never")
    who = texts.text("control.last", pid=seen.job.get("pid"), host=seen.job.get("host"))
    if seen.state == "ended":
        return texts.text("control.ended", who=who, step=seen.job.get("step"), ago=_ago(seen.age))
    if seen.state == "killed":
        return texts.text("control.killed", who=who, ago=_ago(seen.age))
    if seen.state == "silent":
        return texts.text("control.silent", who=who, ago=_ago(seen.age))
    return texts.text("control.ending", who=who)


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return texts.text(f"control.ago.{unit}", n=seconds / size)
    return texts.text("control.ago.seconds", n=seconds)


def _write(file: Path, order: Order, queue: bool) -> None:
    by = {"pid": os.getpid(), "host": machine()["host"]}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, {"created": time.time(), "by": by, "queue": queue, "order": order.given()})
    except OSError as error:
        hint = "only who may write there can command the job"
        raise ConfigError(f"cannot write to {file.parent}: {error.strerror or error}; {hint}") from None


def _new_id() -> str:
    """Ids sort by time."""
    return f"{time.time_ns() // 1_000_000:013d}-{os.getpid()}-{secrets.token_hex(3)}"
