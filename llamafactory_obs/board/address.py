"""Where the board listens, and what the terminal says of it."""

import errno
import os
import socket
from urllib.parse import quote

from ..errors import ConfigError
from ..texts import text
from .server import BoardServer, Visits

#: tried in turn where no port is named
FIRST_PORT, TRIED = 8321, 20


def listen(host: str, port: int | None, visits: Visits) -> BoardServer:
    """A server that listens.

    Raises:
        ConfigError: the named port is taken, none is free, or the address is not one of this machine.
    """
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
    except OSError as error:
        raise ConfigError(f"--host {host}: no such address ({error.strerror or error})") from None
    for number in [port] if port is not None else range(FIRST_PORT, FIRST_PORT + TRIED):
        try:
            return BoardServer(family, (place[0], number, *place[2:]), visits)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    f"port {number} is taken; give another one with --port, or leave it out for the next free one"
                ) from None
            if error.errno == errno.EACCES:
                raise ConfigError(f"port {number} may not be opened by this user; give one above 1023") from None
            raise ConfigError(f"cannot listen on {host} port {number} ({error.strerror or error})") from None
    raise ConfigError(f"no free port from {FIRST_PORT} to {FIRST_PORT + TRIED - 1}; give one with --port")


def lines(server: BoardServer, asked: int | None, runs: list[dict]) -> list[str]:
    """What a person reads in the terminal."""
    from ..charts.text import visible

    facts = server.facts()
    out = [text("board.terminal.at", url=facts["url"])]
    if asked is None and facts["port"] != FIRST_PORT:
        out.append(text("board.terminal.next_port", taken=FIRST_PORT, port=facts["port"]))
    if runs:
        names = ", ".join(visible(run["name"]) for run in runs[:5]) + (" ..." if len(runs) > 5 else "")
        out.append(text("board.terminal.runs", count=len(runs), names=names))
    else:
        out.append(text("board.terminal.no_runs"))
    if not facts["token"] and os.environ.get("SSH_CONNECTION"):
        out.append(text("board.terminal.tunnel", port=facts["port"], host=socket.gethostname()))
    if facts["token"] and facts["open_to_network"]:
        out.append(text("board.terminal.plain"))
    out.append(text("board.terminal.end"))
    return out


def url_of(host: str, port: int, token: str | None) -> str:
    """The address to open; 0.0.0.0 and :: are no addresses to go to, the machine's name is."""
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
