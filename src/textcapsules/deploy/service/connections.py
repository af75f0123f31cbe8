"""Connections: how long a client may take, and how many it may have.

uvicorn limits neither the time that a request's headers take nor the connections of one
address, so a few hundred silent ones would keep all others out, before any token is
asked for. Here every connection that waits for its client has a timer. If there is no
room for a new connection, the one that has waited longest for its client is closed.
A connection whose request is being answered is never closed for that.
"""

import asyncio
import ipaddress
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from textcapsules.deploy.service.guard import HEADERS
from textcapsules.deploy.service.limits import Limits
from textcapsules.deploy.service.metrics import Metrics
from textcapsules.deploy.service.schema import error_reply

__all__ = ["Connection", "Connections", "address_of"]


class Group:
    """Connections that share a limit; 0 means no limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}  # for their clients, longest first

    def make_room(self) -> bool:
        """Tell whether one more fits; close one that waits if needed."""
        if not self.limit or len(self.open) < self.limit:
            return True
        if self.waiting:
            next(iter(self.waiting)).give_way()
        return len(self.open) < self.limit


class Connections:
    """All open connections, together and per address."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.all = Group(limits.max_connections)
        self.addresses: dict[str, Group] = {}
        metrics.connections.set_function(lambda: len(self.all.open))

    def enter(self, connection: "Connection", address: str) -> str:
        """Accept a connection, or return the reason why not."""
        limit = self.limits.max_per_address
        group = self.addresses.get(address) or Group(limit)
        if not group.make_room():
            return f"connections per address must be at most {limit}; got more"
        if not self.all.make_room():
            return f"connections must be at most {self.all.limit}; got more"
        self.addresses[address] = group  # make_room may have removed it
        self.all.open.add(connection)
        group.open.add(connection)
        return ""

    def mark(self, connection: "Connection", address: str, *, waits: bool) -> None:
        """Note whether a connection waits for its client, from now on."""
        for group in (self.all, self.addresses[address]):
            group.waiting.pop(connection, None)
            if waits:
                group.waiting[connection] = None

    def leave(self, connection: "Connection", address: str) -> None:
        """Forget a connection."""
        group = self.addresses.get(address)
        for each in (self.all, group):
            if each is not None:
                each.open.discard(connection)
                each.waiting.pop(connection, None)
        if group is not None and not group.open:
            del self.addresses[address]


class Connection(H11Protocol):
    """uvicorn's HTTP connection with a timer, and with errors in the service's form.

    `waits_for` says what comes next: `headers` of the first or of a begun request, a
    `body`, the service's own `answer`, the `rest` of a body that was answered before
    its end, or nothing (`idle`). `BodyGuard` has the timer of a body.
    """

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.others, limits = connections, connections.limits
        self.seconds = {
            "headers": limits.header_limit,
            "rest": limits.header_limit,
            "idle": limits.idle_limit,
        }
        self.address = ""
        self.is_in = False
        self.waits_for = ""
        self.timer: asyncio.TimerHandle | None = None
        self.unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or refuse the connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that unread answers are noticed
        self.address = address_of(self.client)
        refusal = self.others.enter(self, self.address)
        if refusal:
            self.refuse(503, refusal)
            return
        self.is_in = True
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self.stop_unread_timer()
        self.leave()

    def data_received(self, data: bytes) -> None:
        """Read more bytes."""
        super().data_received(data)
        self.watch()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        super().on_response_complete()
        self.watch()

    def pause_writing(self) -> None:
        """Start the timer of an answer that the client does not take."""
        super().pause_writing()
        seconds = self.others.limits.time_limit
        self.unread_timer = self.loop.call_later(seconds, self.drop_answer)

    def resume_writing(self) -> None:
        """Stop that timer: the answer is taken."""
        super().resume_writing()
        self.stop_unread_timer()

    def drop_answer(self) -> None:
        """Close at once: the client does not take its answer."""
        self.others.metrics.cut.labels("slow").inc()
        self.transport.abort()

    def next_event(self) -> str:
        """Return what the connection waits for now."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            return "body" if cycle.more_body else "answer"
        if self.conn.their_state is h11.SEND_BODY:
            return "rest"
        return "headers" if cycle is None or self.conn.trailing_data[0] else "idle"

    def watch(self) -> None:
        """Set the timer when the next event changes; more bytes give no more time."""
        event = self.next_event()
        if not self.is_in or event == self.waits_for:
            return
        self.waits_for = event
        self.others.mark(self, self.address, waits=event != "answer")
        self.stop_timer()
        if event in self.seconds:
            self.timer = self.loop.call_later(self.seconds[event], self.give_up)

    def stop_timer(self) -> None:
        """Stop the timer if it runs."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def stop_unread_timer(self) -> None:
        """Stop the timer of an answer if it runs."""
        if self.unread_timer is not None:
            self.unread_timer.cancel()
            self.unread_timer = None

    def leave(self) -> None:
        """Give the place back, once."""
        self.stop_timer()
        if self.is_in:
            self.is_in = False
            self.others.leave(self, self.address)

    def give_up(self) -> None:
        """Close a connection whose time is up; say why if a request had begun."""
        if self.waits_for != "idle":
            self.others.metrics.cut.labels("slow").inc()
        if self.waits_for == "headers" and self.conn.trailing_data[0]:
            seconds = self.others.limits.header_limit
            self.refuse(408, f"headers must arrive within {seconds:g} s; they did not")
        self.transport.close()

    def give_way(self) -> None:
        """Close at once in favour of a newer connection."""
        self.others.metrics.cut.labels("room").inc()
        self.leave()
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the service's own form."""
        begun = self.cycle is not None and not self.cycle.response_complete
        hint = getattr(sys.exception(), "error_status_hint", 400)
        if hint == 431 and not begun:
            limit = self.config.h11_max_incomplete_event_size
            self.refuse(431, f"headers must have at most {limit} bytes; they have more")
        else:
            self.refuse(400, "the request must be HTTP/1.1; it cannot be read as such")

    def refuse(self, status: int, message: str) -> None:
        """Answer without the application, if no answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = {**HEADERS, "Cache-Control": "no-store", "Connection": "close"}
            reply = error_reply(status, message, headers)
            start = h11.Response(
                status_code=status,
                headers=reply.raw_headers,
                reason=HTTPStatus(status).phrase.encode(),
            )
            for event in (start, h11.Data(data=bytes(reply.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.others.metrics.requests.labels("other", "other", str(status)).inc()
        if self.cycle is not None:  # the application must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def address_of(client: tuple[str, int] | None) -> str:
    """Return what a client counts by: its IPv4 address, or the /64 of its IPv6 one."""
    if client is None:
        return ""
    address = ipaddress.ip_address(client[0].partition("%")[0])
    if address.version == 6:
        network = ipaddress.IPv6Network((address, 64), strict=False)
        return str(address.ipv4_mapped or network)
    return str(address)
