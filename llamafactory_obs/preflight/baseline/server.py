"""The vLLM server that stays up beside the training: does it answer, and for which model?"""

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from ... import texts
from ...errors import ConfigError
from ...probe.backends import Unavailable
from ...probe.backends.vllm import DEFAULT_ENDPOINT, VllmServer
from ..result import FAIL, PASS, SKIPPED, WARN, Check
from ..run_config import RunConfig
from .base_model import BaseModel
from .served_model import serves

_LORA = "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


@dataclass(frozen=True)
class Endpoint:
    """Where a server is looked for.

    Attributes:
        url: of the server.
        named_by: who asks for a server there, "" for nobody.
        probed: the `probe` callback takes a server that answers there.
    """

    url: str
    named_by: str
    probed: bool

    @property
    def at_home(self) -> bool:
        """Is it on this machine, by its name?"""
        host = urlsplit(self.url if "//" in self.url else f"//{self.url}").hostname
        return host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname())


def endpoint_of(config: RunConfig, given: str | None) -> Endpoint:
    """The endpoint of the call, of the `probe` callback, or the default.

    Raises:
        ConfigError: the callback's is no text.
    """
    options = config.options_of("probe")
    uses = options is not None and options.get("backend") != "local"
    theirs = options.get("endpoint") if uses else None
    if theirs is not None and not isinstance(theirs, str):
        raise ConfigError(f"callbacks: probe: endpoint must be a URL, got {theirs!r}")
    if given:
        return Endpoint(given, "--endpoint", uses)
    named = texts.text("baseline.server.callback") if theirs or (uses and options.get("backend") == "vllm") else ""
    return Endpoint(theirs or DEFAULT_ENDPOINT, named, uses)


def check_server(config: RunConfig, base: BaseModel, endpoint: Endpoint) -> tuple[list[Check], bool]:
    """The checks `server` and `server_model`, and whether a server answers."""
    try:
        server = VllmServer(endpoint.url)
    except Unavailable as error:
        return [_away(endpoint, str(error))], False
    try:
        return [_answers(config, server), _model(server, base, endpoint)], True
    finally:
        server.close()


def _away(endpoint: Endpoint, why: str) -> Check:
    if not endpoint.named_by:
        return Check("server", SKIPPED, None, None, texts.text("baseline.server.default", why=why))
    text = texts.text("baseline.server.named_by", why=why, named_by=endpoint.named_by)
    cures = {"wants a key": texts.text("baseline.server.key"), "no URL": texts.text("baseline.server.endpoint")}
    cure = next((cure for said, cure in cures.items() if said in why), "")
    fix = (cure or texts.text("baseline.server.start")) + (
        "" if endpoint.named_by == "--endpoint" else texts.text("baseline.server.local")
    )
    return Check("server", FAIL, None, "answers", text, fix)


def _answers(config: RunConfig, server: VllmServer) -> Check:
    loads = server.loads_adapters()
    lora = config.given.get("finetuning_type", "lora") == "lora"
    words = texts.text(
        {True: "baseline.server.loads", False: "baseline.server.cannot_load"}.get(loads, "baseline.server.unsaid")
    )
    length = texts.text("baseline.server.tokens", n=server.max_len) if server.max_len else ""
    text = texts.text("baseline.server.answers", where=server.where, length=length, words=words)
    if loads is False and lora:
        return Check("server", WARN, server.base, "answers", texts.text("baseline.server.not_probed", text=text), _LORA)
    return Check("server", PASS, server.base, "answers", text)


def _model(server: VllmServer, base: BaseModel, endpoint: Endpoint) -> Check:
    same, text, by_files = serves(server, base)
    if same:
        return Check("server_model", PASS, server.root, base.name, text)
    fix = texts.text("baseline.server.serve", name=base.name)
    fix += "" if by_files else texts.text("baseline.server.served_name", name=base.name)
    if endpoint.named_by or endpoint.probed:
        return Check("server_model", FAIL, server.root, base.name, text, fix)
    return Check(
        "server_model", WARN, server.root, base.name, texts.text("baseline.server.nothing_asks", text=text), fix
    )
