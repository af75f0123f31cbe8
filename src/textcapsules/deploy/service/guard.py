"""Checks between a connection and the service: tokens, sizes, headers, counts.

Each guard is a plain ASGI middleware. None of them logs a body, a query or a path that
is not one of ours, because any of these may hold a text.
"""

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable, Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from textcapsules.deploy.service.batching import log_fault
from textcapsules.deploy.service.metrics import Metrics
from textcapsules.deploy.service.schema import error_reply

__all__ = ["HEADERS", "BodyGuard", "HostGuard", "OuterGuard", "TokenGuard"]

access_logger = logging.getLogger("textcapsules.deploy.service.access")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PORT = re.compile(r":\d*$")
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

# A body of up to this many times the limit is read to its end, unused: a client that
# is cut off while it sends may never see why.
READ_OUT = 8


class OuterGuard:
    """Give every answer the security headers, count it, and hide what went wrong."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Iterable[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_guarded)
        except Exception as error:
            log_fault("a request failed", error)
            if not status:
                reply = error_reply(500, "the service failed; its log says where")
                await reply(scope, receive, send_guarded)
        self.count(scope, status, time.perf_counter() - started)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answer under a path and a method of ours, or under `other`."""
        path = scope["path"] if scope["path"] in self.paths else "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.count_request(method, path, status, seconds)
        access_logger.info("%s %s %d %.1f ms", method, path, status, 1000 * seconds)


class HostGuard:
    """Answer only to some host names, `*` for any.

    On a loopback address, a foreign name means that a web page has made its own name
    point here.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app, self.hosts = app, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and "*" not in self.hosts:
            name = PORT.sub("", Headers(scope=scope).get("host", "")).lower()
            if name not in self.hosts:
                names = ", ".join(sorted(self.hosts))
                reply = error_reply(
                    400, f"host must be one of {names}; got another. Use its address"
                )
                await reply(scope, receive, send)
                return
        await self.app(scope, receive, send)


class TokenGuard:
    """Ask for a token wherever `is_guarded` says so."""

    def __init__(
        self, app: ASGIApp, token: str, is_guarded: Callable[[str], bool]
    ) -> None:
        self.app, self.is_guarded = app, is_guarded
        self.expected = digest(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and self.is_guarded(scope["path"]):
            given = Headers(scope=scope).get("authorization", "")
            kind, _, token = given.partition(" ")
            # Digests have one length, so the time of the comparison tells nothing.
            right = hmac.compare_digest(digest(token.strip()), self.expected)
            if kind.lower() != "bearer" or not right:
                reply = error_reply(
                    401,
                    "authorization must be `Bearer TOKEN` with the service's token",
                    {"WWW-Authenticate": "Bearer"},
                )
                await reply(scope, receive, send)
                return
        await self.app(scope, receive, send)


def digest(token: str) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class BodyGuard:
    """Read a body before anything else does, if it is short and quick enough."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app, self.max_bytes, self.seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        if "content-length" in headers and "transfer-encoding" in headers:
            # Two lengths: a proxy may use the other, and find a second request in it.
            message = "body must have one length; got content-length and chunks"
            reply = error_reply(400, message, {"Connection": "close"})
            await reply(scope, receive, send)
            return
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.seconds):
                body = await self.read(scope, receive)
        except ConnectionError:
            return
        except TimeoutError:
            message = f"body must arrive within {self.seconds:g} s; it did not"
            await error_reply(408, message)(scope, receive, send)
            return
        if body is None:
            message = f"body must have at most {self.max_bytes} bytes; it has more"
            await error_reply(413, message)(scope, receive, send)
            return
        await self.app(scope, replay(body, receive), send)

    async def read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too long."""
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > READ_OUT * self.max_bytes:
            return None
        body, n_bytes, more = bytearray(), 0, True
        while more and n_bytes <= READ_OUT * self.max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            part = message.get("body", b"")
            n_bytes, more = n_bytes + len(part), message.get("more_body", False)
            if n_bytes <= self.max_bytes:
                body += part
        return bytes(body) if n_bytes <= self.max_bytes else None


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body first, then the connection's messages."""
    parts: list[Message] = [{"type": "http.request", "body": body}]

    async def receive_again() -> Message:
        return parts.pop() if parts else await receive()

    return receive_again
