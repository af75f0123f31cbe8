"""Run the service: models, socket, token, signals, and a stop that loses nothing."""

import asyncio
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from math import ceil
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from textcapsules.base.errors import (
    ConfigError,
    ModelFolderError,
    TextCapsulesError,
)
from textcapsules.deploy.service.limits import Limits
from textcapsules.model.classifier import TextClassifier

if TYPE_CHECKING:
    import uvicorn

    from textcapsules.deploy.service.answers import Service

try:
    import resource
except ImportError:  # not on Windows
    resource = None

__all__ = ["check_start", "read_token", "serve", "server_config"]

TOKEN = re.compile(r"[\x21-\x7e]{16,}")
ORIGIN = re.compile(r"\*|https?://[^\s/?#]+")
BACKLOG = 256  # connections that wait to be accepted
HEADER_BYTES = 16 * 1024
# A name given by the user, as in `tickets=runs/demo/model`.
NAMED = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)

# Scored once before the first request: the first texts compile the kernels.
WARM_UP = ["warm up", "the quick brown fox jumps over the lazy dog " * 4]


def serve(
    places: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    device: str = "auto",
    threads: int | None = None,
    on_ready: Callable[[str, list[str]], None] = lambda url, names: None,
) -> None:
    """Serve models until SIGINT or SIGTERM, then answer all accepted requests.

    Args:
        places: model folders, each as `FOLDER` or `NAME=FOLDER`.
        host: where to listen; an address that others can reach requires a token.
        port: 0 takes any that is free.
        token_file: holds the token that clients must send.
        origins: web pages of other origins that may call the service.
        limits: how much is accepted.
        device: where the models run.
        threads: of the model on a CPU; by default all cores but one, which is left
            to the connections.
        on_ready: called with the address and the models' names when the service runs.
    """
    require_extra()
    token = None if token_file is None else read_token(token_file)
    limits, local = limits or Limits(), is_loopback(host)
    check_reach(host, origins, local=local, token=token)
    raise_open_files(limits.max_connections)
    folders = name_models(places)
    with listening_socket(host, port) as listener:
        models = load_models(folders, device)
        from textcapsules.deploy.service.answers import Service
        from textcapsules.deploy.service.app import LOOPBACK, create_app

        service = Service(models, limits, threads or max(1, (os.cpu_count() or 1) - 1))
        hosts = {*LOOPBACK, listener.getsockname()[0]} if local else ("*",)
        app = create_app(service, token=token, origins=origins, hosts=hosts)
        url, config = url_of(listener), server_config(app, service)
        run_server(config, listener, lambda: on_ready(url, list(folders)))


def name_models(places: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each name: `NAME=FOLDER`, or a folder's own name."""
    named: dict[str, Path] = {}
    for place in places:
        match = None if Path(place).is_dir() else NAMED.fullmatch(place)
        folder = Path(match[2] if match else place)
        own = os.path.abspath(folder)  # noqa: PTH100 (a link keeps its own name)
        name = match[1] if match else Path(own).name
        if name in named:
            raise ConfigError(
                f"models must have different names; got {name!r} twice. Give one "
                f"another name: NAME={folder}."
            )
        named[name] = folder
    return named


def load_models(
    folders: Mapping[str, Path], device: str = "auto"
) -> dict[str, TextClassifier]:
    """Load every model and score first texts; refuse a model with scores of NaN."""
    models = {
        name: TextClassifier.load(folder, device) for name, folder in folders.items()
    }
    for name, model in models.items():
        texts = [*WARM_UP, *model.labels.names]
        if not np.isfinite(model.scores(texts)).all():
            raise ModelFolderError(
                f"{folders[name]} must hold a model with finite scores; got NaN "
                "or infinity for a first text. Restore the folder or train again."
            )
    return models


def check_start(host: str = "127.0.0.1", port: int = 8000) -> None:
    """Check now, before other, longer work, that `serve` will be able to start."""
    require_extra()
    with listening_socket(host, port):
        pass


def require_extra() -> None:
    """Raise an error if the libraries of the extra are missing."""
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        try:
            import_module(name)
        except ImportError as error:
            raise TextCapsulesError(
                f"{name} must be installed to serve; got none. "
                "Run `pip install 'textcapsules[serve]'`."
            ) from error


def read_token(path: Path) -> str:
    """Return the token a file holds."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "bytes that are not UTF-8"
        raise ConfigError(
            f"token-file must be a readable file; got {reason} for {path}."
        ) from error
    if not TOKEN.fullmatch(token):
        raise ConfigError(
            "token-file must hold one token of at least 16 ASCII characters without "
            f"spaces; {path} holds something else. Make one with `openssl rand -hex "
            "32`."
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_reach(
    host: str, origins: Sequence[str], *, local: bool, token: str | None
) -> None:
    """Refuse to be open to others without a token, and malformed origins."""
    if not local and token is None:
        raise ConfigError(
            f"host must be 127.0.0.1 where no token is asked for; got {host}. "
            "Pass --token-file to be reached from elsewhere."
        )
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            raise ConfigError(
                "cors must be an origin as https://example.org, without a path, or *; "
                f"got {origin!r}."
            )


@contextmanager
def listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Take the address before the models are loaded, which takes a while."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port must be from 0 to 65535; got {port}.")
    try:
        # Without the protocol, asyncio would let a connection's small packets wait for
        # each other: 40 ms per answer.
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"host must be an address of this machine; got {host!r}: {error.strerror}."
        ) from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
            listener.listen()  # a bind alone does not notice another program's
        except OSError as error:
            raise ConfigError(
                f"port must be free; got {port} on {host}: {error.strerror}. Name "
                "another with --port, or 0 for any."
            ) from error
        yield listener


def url_of(listener: socket.socket) -> str:
    """Return the address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def raise_open_files(connections: int) -> None:
    """Let the process open that many connections, or raise an error.

    Some more are accepted before the first of them can be closed.
    """
    if resource is None:
        return
    needed = connections + 2 * BACKLOG + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < needed:
        if hard != unlimited and hard < needed:
            raise ConfigError(
                f"max_connections must be at most {hard - needed + connections}, as "
                f"this machine lets a process open {hard} files; got {connections}. "
                "Lower --max-connections or raise `ulimit -n`."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def server_config(app: Any, service: "Service") -> "uvicorn.Config":
    """Return how uvicorn is to serve the application."""
    import uvicorn

    from textcapsules.deploy.service.connections import Connection, Connections

    limits = service.limits
    connections = Connections(limits, service.metrics)
    return uvicorn.Config(
        app,
        http=cast("Any", partial(Connection, connections=connections)),
        ws="none",
        log_config=None,
        log_level="error",  # a bad request is answered; it must not fill the log
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=ceil(limits.idle_limit) + 1,  # our own timer comes first
        timeout_graceful_shutdown=int(limits.time_limit) + 5,
    )


def run_server(
    config: "uvicorn.Config", listener: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Answer requests until a signal comes; a second Ctrl-C ends it at once."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            # Unlike uvicorn's own, it does not raise the signal again in the end.
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

    asyncio.run(Server(config).serve(sockets=[listener]))
