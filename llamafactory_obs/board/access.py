"""Who may look: the name by which the board was called, and the token.

Without a token the board answers on the loopback address only, and only to the names that mean it. A page of another
site whose name was made to point here (DNS rebinding) carries its own name in the Host header and gets nothing.
With a token any name will do: such a page has no cookie of ours.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Access:
    """The rule of one board.

    Attributes:
        token: what a visitor must know; None where only this machine can call.
    """

    token: str | None = field(default=None, repr=False)

    @classmethod
    def for_host(cls, host: str, token: str | None) -> "Access":
        """The rule for an address to listen on; off the loopback address a token is made where none is given."""
        return cls(token or (None if is_local(host) else secrets.token_urlsafe(24)))

    def cookie(self, port: int) -> tuple[str, str]:
        """Name and value of the cookie that stands for the token.

        Browsers share cookies between ports, and boards of two machines may both be tunnelled to this one: each machine
        and port has a name of its own. The value is a hash, so a cookie that leaks does not tell the token.
        """
        word = hmac.new((self.token or "").encode(), b"llamafactory-obs board", hashlib.sha256).hexdigest()
        machine = hashlib.sha256(socket.gethostname().encode("utf-8", "surrogateescape")).hexdigest()[:6]
        return f"llamafactory_obs_board_{port}_{machine}", word

    def judge(
        self, names: Sequence[str], cookies: Sequence[str], given: str | None, port: int
    ) -> Literal["in", "welcome", "wrong name", "no token", "wrong token"]:
        """May this visitor come in?

        Args:
            names: by which the board was called: each Host header, and the one in the address where it is a whole URL.
            cookies: each Cookie header.
            given: the token in the address, None where there is none.
            port: that the board listens on.

        Returns:
            "in"; "welcome": by the token in the address, a cookie shall be set; else why not.
        """
        if self.token is None:
            return "in" if names and all(map(_means_this_machine, names)) else "wrong name"
        if given is not None:
            return "welcome" if _same(given, self.token) else "wrong token"
        name, value = self.cookie(port)
        held = [found for header in cookies for found in _cookies(header, name)]
        if not held:
            return "no token"
        return "in" if any([_same(one, value) for one in held]) else "wrong token"


def is_local(host: str) -> bool:
    """Is this an address that only this machine can reach?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _means_this_machine(host: str) -> bool:
    """Is this Host header a name of the loopback address? Its port may be another one: a tunnel has its own."""
    match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([^:\[\]]+)(?::[0-9]+)?", host.strip())
    return bool(match) and is_local((match[1] or match[2]).removesuffix("."))


def _cookies(header: str, name: str) -> list[str]:
    """The values of one cookie. Others of this machine's servers stand beside it, and need not follow RFC 6265."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value.strip().strip('"') for key, _, value in pairs if key.strip() == name]


def _same(one: str, other: str) -> bool:
    """Compared in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
