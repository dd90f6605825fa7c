"""A running vLLM server. LoRA checkpoints are loaded at run time, under a name and path that no other content has.

The prompt goes to `/v1/completions` as token ids, so that no other template can come between; the answer comes back
with its ids and its special tokens. A name is never reused and `load_inplace` never set: vLLM's prefix cache would
answer from the old weights (vLLM issue 42125), and the flag would make the worker read the disk at every step.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator

import httpx

from ..copies import Taken
from . import Generation, Refused, Unavailable
from .adapter_check import changes_nothing, check, check_tensors, needed_limit, needed_rank, read_config

DEFAULT_ENDPOINT = "http://localhost:8000/v1"
#: every setting that a server could take from the model's generation_config.json is sent, so that none of it counts
GREEDY = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "seed": 0,
    "n": 1,
}
_TIMEOUT = httpx.Timeout(300.0, connect=5.0)  # seconds; loading an adapter and a first token may take long on a CPU
_GLANCE = httpx.Timeout(10.0, connect=5.0)  # a list of models is no work
_RANK = re.compile(r"rank\D*(\d+).*max_lora_rank\D*(\d+)", re.DOTALL | re.IGNORECASE)


class VllmServer:
    """See `Backend`.

    Args:
        endpoint: up to and including `/v1` (which is added where it is missing).
        why: why this backend was chosen.

    Raises:
        Unavailable: nothing answers there, or it is no vLLM server.
    """

    name = "vllm"

    def __init__(self, endpoint: str, why: str = ""):
        endpoint = endpoint.rstrip("/")
        self.endpoint = endpoint if endpoint.endswith("/v1") else f"{endpoint}/v1"
        key = os.environ.get("VLLM_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            url = httpx.URL(self.endpoint)
            if url.scheme not in ("http", "https") or not url.host:
                raise ValueError(f"{endpoint!r}; write http://HOST:PORT/v1")
            at_home = url.host in ("localhost", "127.0.0.1", "::1")  # a proxy would send it, and the key, elsewhere
            self._http = httpx.Client(timeout=_TIMEOUT, headers=headers, trust_env=not at_home)
        except (httpx.InvalidURL, ValueError) as error:
            raise Unavailable(f"the endpoint is no URL: {error}") from None
        self._url = self.endpoint
        self.endpoint = str(url.copy_with(userinfo=b""))  # a password is not shown
        served = self._base()
        self.base, self.root = served["id"], served.get("root") or served["id"]
        self.max_len = served.get("max_model_len")
        self.version = self._version()
        if self.version is None:
            raise Unavailable(f"{self.endpoint} is no vLLM server (it has no /version)")
        self.settings = dict(GREEDY)
        self.why = why
        self.where = f"vLLM {self.version} at {self.endpoint}, serving {self.base}"

    def _models(self) -> list[dict]:
        answer = self._call("GET", "/models")
        if answer.status_code in (401, 403):
            raise Unavailable(f"{self.endpoint} wants a key: set VLLM_API_KEY")
        try:
            models = answer.json()["data"]
            if all(isinstance(model["id"], str) for model in models):
                return models
        except (ValueError, KeyError, TypeError):
            pass
        raise Unavailable(f"{self.endpoint}/models gives no list of models: is it a vLLM server?")

    def _base(self) -> dict:
        models = [model for model in self._models() if not model.get("parent")]
        if not models:
            raise Unavailable(f"{self.endpoint} serves no base model")
        return models[0]

    def _version(self) -> str | None:
        with contextlib.suppress(Unavailable, ValueError, AttributeError):
            version = self._call("GET", self._url.removesuffix("/v1") + "/version").json().get("version")
            return version if isinstance(version, str) else None
        return None

    def loads_adapters(self) -> bool | None:
        """Has it the route that loads adapters at run time? None where it does not publish its routes."""
        with contextlib.suppress(Unavailable, ValueError, AttributeError, TypeError):
            paths = self._call("GET", self._url.removesuffix("/v1") + "/openapi.json").json().get("paths")
            return "/v1/load_lora_adapter" in paths if isinstance(paths, dict) else None
        return None

    def _call(self, method: str, path: str, body: dict | None = None) -> httpx.Response:
        url = path if path.startswith("http") else self._url + path
        try:
            return self._http.request(method, url, json=body, timeout=_GLANCE if method == "GET" else _TIMEOUT)
        except httpx.HTTPError as error:
            raise Unavailable(f"{self.endpoint} does not answer ({type(error).__name__})") from None

    @contextlib.contextmanager
    def open(self, taken: Taken | None) -> Iterator["ServedModel"]:
        """See `Backend.open`."""
        if taken is None:
            yield ServedModel(self, self.base, [])
            return
        if taken.kind != "adapter":
            raise Refused("vLLM cannot load whole checkpoints at run time, only LoRA adapters", "use --backend local")
        config = read_config(taken.path)
        check(config)
        check_tensors(taken.path)
        name = f"obs-{taken.name}-{taken.content[:12]}"
        notes = self._about_base(config)
        self._load(name, taken, config)
        try:
            yield ServedModel(self, name, notes, changes_nothing(taken.path))
        finally:
            with contextlib.suppress(Unavailable):
                self._unload(name)

    def _unload(self, name: str) -> None:
        self._call("POST", "/unload_lora_adapter", {"lora_name": name})

    def _about_base(self, config: dict) -> list[str]:
        trained = str(config.get("base_model_name_or_path") or "")
        if not trained or trained.rstrip("/").split("/")[-1] == self.root.rstrip("/").split("/")[-1]:
            return []
        return [f"the adapter was trained on {trained}, the server serves {self.root}: are they the same model?"]

    def _load(self, name: str, taken: Taken, config: dict) -> None:
        path = str(taken.path.resolve())
        request = {"lora_name": name, "lora_path": path}
        answer = self._call("POST", "/load_lora_adapter", request)
        if answer.status_code == 400 and "already been loaded" in _message(answer):
            # By us, before a kill: the same content, but its path may be gone, and the server reads it again when it
            # needs the slot.
            self._unload(name)
            answer = self._call("POST", "/load_lora_adapter", request)
        said = _message(answer)
        if answer.status_code == 404 and "adapter" not in said.lower():
            cure = "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            raise Refused("the server does not load adapters at run time (no such route)", cure)
        if answer.status_code != 200:
            raise self._refusal(answer.status_code, said, path, needed_rank(config))
        if name not in [model.get("id") for model in self._models()]:
            raise Refused(f"the server said that it loaded {name}, but does not list it", "update vLLM")

    def _refusal(self, status: int, said: str, path: str, rank: int) -> Exception:
        found = _RANK.search(said)
        if found:
            cure = f"start vLLM with --max-lora-rank {needed_limit(rank)}"
            return Refused(f"its rank {rank} is above the server's max_lora_rank {found[2]}", cure)
        if status == 404 or "No adapter found" in said or "doesn't contain tensors" in said:
            cure = "the server must see this path and may read it: share the folder with it, or choose one by --copies"
            return Refused(f"the server finds no adapter at {path}", cure)
        if "LoRA is not enabled" in said or "--enable-lora" in said or "lora_manager" in said.lower():
            return Refused("the server was started without LoRA", "start vLLM with --enable-lora")
        if status >= 500 and ("EngineDead" in said or "EngineCore" in said):
            return Unavailable(f"the server's engine has died: {said[:200]}")
        if "deserializing header" in said:
            return Refused(f"the server cannot read its weights: {said[:300]}", "is its copy of the folder up to date?")
        if any(word in said for word in ("target modules", "target_modules", "shape", "size mismatch", "unexpected")):
            return Refused(
                f"the server cannot fit it to {self.base}: {said[:300]}", "serve the base model it was trained on"
            )
        return Refused(f"the server refuses it (HTTP {status}): {said[:300] or 'no reason given'}")

    def complete(self, body: dict) -> dict:
        """One completion, not streamed; raises as `check_answer`."""
        answer = self._call("POST", "/completions", body)
        said = _message(answer) if answer.status_code != 200 else ""
        self.check_answer(answer.status_code, said, body["model"] != self.base)
        return answer.json()

    def check_answer(self, status: int, said: str, adapter: bool) -> None:
        """Tell an answer of the server that is no completion apart: its fault, or the request's."""
        if status == 200:
            return
        if status == 404 and adapter:
            raise Unavailable(f"the server no longer knows the adapter: was it restarted? ({said[:200]})")
        if status == 400 and "maximum context length" in said:
            raise Refused(f"the prompt does not fit: {said[:200]}", "start vLLM with a larger --max-model-len")
        if status >= 500 or status == 429:
            raise Unavailable(f"the server answers HTTP {status}: {said[:200]}")
        raise Refused(f"the server refuses the request (HTTP {status}): {said[:300]}")

    def stream(self, body: dict) -> Iterator[dict]:
        """The chunks of a streamed completion."""
        try:
            with self._http.stream("POST", f"{self._url}/completions", json={**body, "stream": True}) as answer:
                if answer.status_code != 200:
                    answer.read()
                    self.check_answer(answer.status_code, _message(answer), body["model"] != self.base)
                for line in answer.iter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        chunk = json.loads(data)
                        if "error" in chunk:
                            raise Unavailable(f"the server broke off: {str(chunk['error'])[:200]}")
                        yield chunk
        except (httpx.HTTPError, ValueError) as error:
            raise Unavailable(f"{self.endpoint} broke off while answering ({type(error).__name__})") from None

    def close(self) -> None:
        """See `Backend.close`."""
        self._http.close()


class ServedModel:
    """See `Model`.

    Args:
        server: where it is.
        name: the adapter's name there, or the base model's.
        notes: see `Model`.
        is_base: the adapter's weights are known to change nothing.
    """

    def __init__(self, server: VllmServer, name: str, notes: list[str], is_base: bool = False):
        self._server, self._name, self.notes = server, name, notes
        self._unproven = name != server.base
        self._is_base = is_base

    def generate(
        self, prompt: list[int], stop_ids: list[int], max_new_tokens: int, progress: Callable[[int], None]
    ) -> Generation:
        """See `Model.generate`."""
        body = {
            "model": self._name,
            "prompt": prompt,
            "max_tokens": max_new_tokens,
            "stop_token_ids": stop_ids,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "return_token_ids": True,
            **GREEDY,
        }
        start, first, ids, finish, stop = time.perf_counter(), 0.0, [], None, None
        for chunk in self._server.stream(body):
            for choice in chunk.get("choices", []):
                ids += choice.get("token_ids") or []
                finish, stop = choice.get("finish_reason") or finish, choice.get("stop_reason") or stop
            if ids and not first:
                first = time.perf_counter() - start
            progress(len(ids))
        if finish is None:
            raise Unavailable("the server ended its answer without saying why")
        if finish == "stop" and isinstance(stop, int) and ids[-1:] != [stop]:
            ids.append(stop)
        elapsed = time.perf_counter() - start
        if self._unproven:  # afterwards: nobody waits for it, and the adapter's prompt is in the cache now
            self._prove_applied(prompt)
            self._unproven = False
        return Generation(ids, "length" if finish == "length" else "stop", elapsed, first or elapsed)

    def _prove_applied(self, prompt: list[int]) -> None:
        """The adapter must change the probabilities of the first token; being listed proves nothing."""
        body = {"prompt": prompt, "max_tokens": 1, "logprobs": 5, **GREEDY}
        with_adapter, without = (
            self._server.complete({**body, "model": name})["choices"][0]["logprobs"]["top_logprobs"]
            for name in (self._name, self._server.base)
        )
        if with_adapter == without:
            reason = (
                "its lora_B is all zero: it was saved before it learned" if self._is_base else "is it really served?"
            )
            self.notes.append(f"the adapter changes nothing: the same probabilities as the base model; {reason}")


def _message(answer: httpx.Response) -> str:
    """The server's words, whatever form they have."""
    try:
        body = answer.json()
    except ValueError:
        return answer.text
    error = body.get("error", body) if isinstance(body, dict) else body
    said = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return said if isinstance(said, str) else json.dumps(said)
