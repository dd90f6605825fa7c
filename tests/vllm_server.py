"""A real vLLM server on the CPU, in the environment whose python VLLM_PYTHON names."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

START_S = 180.0
"""It needs about half a minute where it has been started before; the first start of an environment compiles."""


def python() -> str | None:
    """The python that has vLLM, "" or None where none is named."""
    return os.environ.get("VLLM_PYTHON")


class VllmProcess:
    """One server: it can be killed as by the kernel, and started again on the same port.

    Args:
        model: the base model's folder.
        log: where it writes, appended to.
        updating: adapters may be loaded at run time.
        words: more options of the server.
    """

    def __init__(self, model: Path, log: Path, updating: bool = True, words: tuple[str, ...] = ()):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}/v1"
        self.log = log
        self._words = [python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--enable-lora"]
        self._words += ["--dtype", "float32", "--max-model-len", "2048", "--enforce-eager"]
        self._words += ["--host", "127.0.0.1", "--port", str(self.port), *words]
        self._env = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        self._env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # else it shares one core with whatever runs there
        self._env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = str(updating)
        self._process: subprocess.Popen | None = None

    def begin(self) -> "VllmProcess":
        """Start it; it does not answer yet."""
        with open(self.log, "ab") as log:
            # not from here: a folder that holds a package named like one of vLLM's would be imported
            cwd = tempfile.gettempdir()
            self._process = subprocess.Popen(
                self._words, env=self._env, stdout=log, stderr=log, cwd=cwd, start_new_session=True
            )
        return self

    def ready(self) -> "VllmProcess":
        """Wait until it answers.

        Raises:
            RuntimeError: it does not; with the end of its log.
        """
        deadline = time.monotonic() + START_S
        while not self.healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                code = self._process.poll()
                self.kill()
                raise RuntimeError(f"vLLM does not come up (exit code {code}):\n{self.tail()}")
            time.sleep(0.3)
        return self

    def healthy(self) -> bool:
        """Does it answer?"""
        try:
            return httpx.get(self.endpoint.removesuffix("/v1") + "/health", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def models(self) -> list[str]:
        """What `/v1/models` lists."""
        return [model["id"] for model in httpx.get(f"{self.endpoint}/models", timeout=30).json()["data"]]

    def post(self, path: str, body: dict) -> tuple[int, str]:
        """Status and text of the answer."""
        answer = httpx.post(f"{self.endpoint}{path}", json=body, timeout=120)
        return answer.status_code, answer.text

    def kill(self) -> None:
        """kill -9 for it and its workers; returns when they are gone."""
        if self._process is None:
            return
        group, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group.pid, signal.SIGKILL)
        group.wait(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:  # the workers are reaped by somebody else
            try:
                os.killpg(group.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)

    def tail(self, characters: int = 4000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else "(it wrote nothing)"
