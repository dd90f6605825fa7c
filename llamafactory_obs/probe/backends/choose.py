"""Which backend generates, and why; the reason is always said."""

import importlib.util
from dataclasses import dataclass

from ...errors import ConfigError
from . import Backend, Unavailable

NAMES = ("auto", "vllm", "local")
_NEEDS_LOCAL = 'needs transformers and peft: pip install "llamafactory-obs[local]"'


@dataclass(frozen=True)
class Choice:
    """A backend, and what to fall back to when it refuses a checkpoint.

    Attributes:
        backend: the one to use.
        fallback: makes a local backend, given why; None where the user asked for one backend.
    """

    backend: Backend
    fallback: bool


def local_available() -> bool:
    """Can models run in this process?"""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers", "peft"))


def make_local(base: str | None, device: str, why: str, quantized: bool) -> Backend:
    """A local backend.

    Raises:
        ConfigError: transformers or peft is missing.
    """
    if not local_available():
        raise ConfigError(f"--backend local {_NEEDS_LOCAL}")
    from .local import LocalModels

    return LocalModels(base, device, why, quantized)


def choose(
    wanted: str, endpoint: str, given: bool, base: str | None, device: str, quantized: bool, whole: bool
) -> Choice:
    """The backend for `--backend`.

    Args:
        wanted: one of `NAMES`.
        endpoint: of the vLLM server.
        given: the endpoint was named by the user.
        base, device, quantized: for a local backend, see `LocalModels`.
        whole: the checkpoints are whole models (full fine-tuning).

    Raises:
        ConfigError: none can be had.
        Unavailable: vLLM was asked for, by name or by its endpoint, and does not answer now.
    """
    from .vllm import VllmServer

    if wanted == "local":
        return Choice(make_local(base, device, "asked for by --backend local", quantized), False)
    if wanted == "vllm":
        return Choice(VllmServer(endpoint, "asked for by --backend vllm"), False)
    if whole:
        why = "the checkpoints are whole models, which vLLM cannot load at run time"
        return Choice(make_local(base, device, why, quantized), False)
    try:
        server = VllmServer(endpoint)
    except Unavailable as error:
        if given:
            raise  # it was asked for: waited for
        if not local_available():
            raise ConfigError(f"no backend: {error}, and generating here {_NEEDS_LOCAL}") from None
        return Choice(make_local(base, device, f"no vLLM server: {error}", quantized), False)
    server.why = f"a vLLM server answers at {server.endpoint}"
    return Choice(server, local_available())
