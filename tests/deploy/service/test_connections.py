"""Real connections that are slow, silent or too many, beside a client that is not."""

import gc
import itertools
import json
import socket
from contextlib import ExitStack, contextmanager

import pytest

from serving import Gate, running, toy_service
from textcapsules.base.errors import ConfigError
from textcapsules.deploy.service import run
from textcapsules.deploy.service.connections import address_of
from textcapsules.deploy.service.limits import Limits

pytestmark = pytest.mark.slow

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BEGUN = GET[:-2] + b"X-Slow: "
BODY = json.dumps({"model": "pets", "texts": "cat"}).encode()
POST = (
    b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
    b"\r\nContent-Length: %d\r\n\r\n" % len(BODY)
)


def connect(client, source: str = "127.0.0.1") -> socket.socket:
    place = (client.base_url.host, client.base_url.port)
    return socket.create_connection(place, timeout=30, source_address=(source, 0))


@contextmanager
def connections(client, n_lines: int, begin: bytes = b""):
    """Hold some connections open, each with the same first bytes sent."""
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(client)) for _ in range(n_lines)]
        for line in lines:
            try:
                line.sendall(begin)
            except ConnectionError:
                continue  # already had to give way
        yield lines


def read(line: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    answer = b""
    try:
        while part := line.recv(65536):
            answer += part
    except ConnectionError:
        pass
    return answer


def error_of(answer: bytes) -> tuple[int, str]:
    """Return an answer's status and reason, after a look at its form."""
    start, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in start.lower()
    assert b"x-content-type-options: nosniff" in start.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"reason", "message"}
    return int(start.split()[1]), error["reason"]


def counted(client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("begin", [b"", BEGUN, POST], ids=["silent", "header", "body"])
@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_connections=60, max_per_address=20),
        Limits(max_connections=60, max_per_address=0),
    ],
    ids=["capped", "uncapped"],
)
def test_many_slow_connections_keep_nobody_out(limits, begin):
    # No clock runs out meanwhile.
    with running(toy_service(limits)) as client, connections(client, 300, begin):
        for source in ("127.0.0.1", "127.0.0.2"):
            with connect(client, source) as line:
                line.sendall(POST + BODY)
                assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert counted(client, "textcapsules_connections ") <= 60
        assert counted(client, "textcapsules_connections_cut_total") >= 240


def test_connections_that_end_are_forgotten():
    with running(toy_service()) as client:
        with connections(client, 20, GET) as lines:
            for line in lines:
                assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert counted(client, "textcapsules_connections ") == 21
        while counted(client, "textcapsules_connections ") > 1:
            pass


def test_headers_that_do_not_come_are_given_up():
    with (
        running(toy_service(Limits(header_limit=1.0))) as client,
        connect(client) as silent,
        connect(client) as begun,
        connect(client) as second,
    ):
        begun.sendall(BEGUN)
        second.sendall(GET + BEGUN)  # the next request of a connection has no more time
        assert read(silent) == b""
        assert error_of(read(begun)) == (408, "request_too_slow")
        answers = read(second)
        assert answers.startswith(b"HTTP/1.1 200 ")
        assert error_of(answers[answers.index(b"HTTP/1.1 408") :])[0] == 408


def test_a_byte_now_and_then_wins_no_time():
    with (
        running(toy_service(Limits(header_limit=1.0))) as client,
        connect(client) as line,
    ):
        line.settimeout(0.05)
        line.sendall(BEGUN)
        answer = b""
        for _ in range(600):
            try:
                answer = line.recv(65536)
                break
            except TimeoutError:
                line.sendall(b"x")
        assert b" 408 " in answer.splitlines()[0]


def test_an_idle_connection_is_closed():
    limits = Limits(idle_limit=0.5)
    with running(toy_service(limits)) as client, connect(client) as line:
        line.sendall(GET)
        assert read(line).count(b"HTTP/1.1 ") == 1  # and then the end


@pytest.mark.parametrize("sent", [b"x", b"xxxxx"], ids=["in part", "whole"])
def test_a_body_that_nobody_asked_for_holds_no_connection(sent):
    limits = Limits(header_limit=1.0, idle_limit=1.0)
    with running(toy_service(limits)) as client, connect(client) as line:
        line.sendall(GET[:-2] + b"Content-Length: 5\r\n\r\n")
        answer = line.recv(65536)
        while not answer.endswith(b'{"status":"ok"}'):  # it may come in pieces
            answer += line.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 ")
        line.sendall(sent)
        assert read(line) == b""


def test_an_answer_that_is_not_taken_is_dropped():
    n_requests = 1500
    request = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with running(toy_service(Limits(time_limit=0.2))) as client:
        size = len(client.get("/openapi.json").content)
        with connect(client) as line:
            line.sendall(request * n_requests)
            while not counted(client, "textcapsules_connections_cut_total"):
                pass
            assert len(read(line)) < n_requests * size


@pytest.mark.parametrize(
    ("limits", "other"),
    [
        (Limits(max_per_address=2), b"HTTP/1.1 200 "),
        (Limits(max_connections=2), b"HTTP/1.1 503 "),
    ],
    ids=["per address", "in all"],
)
def test_requests_being_answered_keep_their_places(limits, other):
    service = toy_service(limits)
    gate = Gate(service)
    with running(service) as client, connections(client, 2, POST + BODY) as lines:
        while service.batcher.waiting + sum(map(len, gate.batches)) < 2:
            pass
        with connect(client) as third:
            assert error_of(read(third)) == (503, "unavailable")
        with connect(client, "127.0.0.2") as elsewhere:
            elsewhere.sendall(GET)
            assert elsewhere.recv(65536).startswith(other)
        gate.open.set()
        for line in lines:
            assert line.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (("192.0.2.7", 9), "192.0.2.7"),
        (("::ffff:192.0.2.7", 9), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 9), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::", 9), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 9), "fe80::/64"),
        (("::1", 9), "::/64"),
        (None, ""),
    ],
)
def test_addresses_of_one_client_are_one(client, expected):
    assert address_of(client) == expected


def test_more_connections_than_open_files_are_refused(monkeypatch):
    resource = pytest.importorskip("resource")
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 2000))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: raised.append(pair))
    run.raise_open_files(1000)
    assert raised == [(1000 + 2 * run.BACKLOG + 64, 2000)]
    with pytest.raises(ConfigError, match="max_connections must be at most 1424, as"):
        run.raise_open_files(1425)


def test_requests_leave_no_objects_behind():
    """Memory that grows with the requests would show as objects that stay."""
    with running(toy_service()) as client:

        def ask(first: int, n_requests: int) -> int:
            for n in range(first, first + n_requests):
                texts = [f"cat purr word{n} {'dog ' * (n % 40)}"] * (1 + n % 3)
                request = {"model": "pets", "texts": texts, "explain": not n % 10}
                assert client.post("/v1/predict", json=request).status_code == 200
                client.get(f"/nowhere/{n}")
                with connect(client) as line:
                    line.sendall(BEGUN)
            gc.collect()
            return len(gc.get_objects())

        counts = [ask(40 * part, 40) for part in range(4)]
        grown = [after - before for before, after in itertools.pairwise(counts)]
        # Less than one per request. A leak grows in every part; what else the process
        # does may make one part larger.
        assert min(grown) < 40
