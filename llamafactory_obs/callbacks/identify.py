"""Writes `run.json`: the quick facts at once, the hashes of big files from a thread of their own."""

import contextlib
import threading
import time

import psutil

from .. import __version__
from ..identity import brief, collect, difference, patch
from ..record.reader import decode_run
from ..record.schema import RUN

#: seconds that the end of training waits for hashes that are not done yet
_PATIENCE = 30.0


class Identification:
    """The run's identity, one entry of `segments` per start of training.

    Args:
        trainer: the Trainer.
        context: the launch's `RunContext`.
        writer: the record's writer; its folder may hold the identity of the segments before.
    """

    def __init__(self, trainer, context, writer):
        self._writer = writer
        self._lock = threading.Lock()
        earlier = decode_run(writer.folder / RUN)
        identity, self._jobs = collect(
            trainer.args,
            given_config=context.given,
            **{
                name: context.arguments.get(name)
                for name in ("model_args", "data_args", "finetuning_args", "generating_args")
            },
            model=trainer.model,
            tokenizer=getattr(trainer, "processing_class", None),
            train_dataset=getattr(trainer, "train_dataset", None),
        )
        self._identity = {"llamafactory_obs": __version__, **identity}
        segment = {"segment": writer.segment, "started": time.time(), "from_step": trainer.state.global_step}
        with contextlib.suppress(Exception):  # loading the model and the data is part of what the machine was kept for
            segment["process_started"] = psutil.Process().create_time()
        self._earlier = earlier
        self._identity["segments"] = [*earlier.get("segments", []), segment]
        self._segment = segment
        self._told: dict = {}
        self._write()
        self._thread = threading.Thread(target=self._work, name="llamafactory-obs-identity", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the hashes, for a while; what is still missing is named under `unknown`."""
        self._thread.join(timeout=_PATIENCE)
        if self._thread.is_alive():
            with self._lock:
                for field, _ in self._jobs:
                    patch(self._identity, field, {"unknown": "not finished when training ended"})
                self._jobs = []
                self._write()

    def tell(self, trackers) -> None:
        """Hand what is known of the identity by now to the trackers, where it is news; note their own runs."""
        with self._lock:
            if "trackers" not in self._segment and (runs := trackers.runs):
                self._segment["trackers"] = runs
                self._write()
            known = brief(self._identity)
        if known != self._told:
            self._told = known
            trackers.identify(known)

    def _work(self) -> None:
        while self._jobs:
            field, job = self._jobs[0]
            value = job()
            with self._lock:
                if not self._jobs:
                    return  # training has ended and does not wait any longer
                self._jobs.pop(0)
                patch(self._identity, field, value)
                self._write()
        if self._earlier:
            with self._lock:
                self._segment["changed"] = difference(*map(_without_segments, (self._earlier, self._identity)))
                self._write()

    def _write(self) -> None:
        self._writer.write_run(self._identity)


def _without_segments(identity: dict) -> dict:
    return {key: value for key, value in identity.items() if key not in ("segments", "schema_version")}
