"""Bytes that no honest client sends: refused or closed, and never a fault of ours."""

import json
import random
import re
import socket
from contextlib import ExitStack

import pytest

from serving import running, toy_service
from textcapsules.deploy.service.limits import Limits

pytestmark = pytest.mark.slow

TOKEN = "s3cret-s3cret-s3cret"
BODY = b'{"model": "pets", "texts": "cat"}'
LINE = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HEAD = LINE + b"Authorization: Bearer %s\r\n" % TOKEN.encode()
JSON = b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GOOD = HEAD + JSON + LENGTH + b"\r\n" + BODY


@pytest.fixture(scope="module")
def client():
    limits = Limits(header_limit=1.5, idle_limit=0.5, time_limit=4.0)
    with running(toy_service(limits), token=TOKEN) as client:
        yield client


@pytest.fixture(autouse=True)
def no_harm(client, caplog):
    """After each test the log is clean and a good client is answered."""
    yield
    with socket.create_connection((client.base_url.host, client.base_url.port)) as line:
        line.settimeout(30)
        line.sendall(GOOD)
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert [record.getMessage() for record in caplog.records] == []


def exchange(client, *requests: bytes) -> list[bytes]:
    """Send each request on a connection of its own; return what came back."""
    answers = []
    with ExitStack() as stack:
        lines = []
        for request in requests:
            place = (client.base_url.host, client.base_url.port)
            lines.append(stack.enter_context(socket.create_connection(place)))
            lines[-1].settimeout(30)
            try:
                lines[-1].sendall(request)
            except ConnectionError:
                continue  # refused before its end
        for line in lines:
            answer = b""
            try:
                while part := line.recv(65536):
                    answer += part
            except ConnectionError:
                pass
            answers.append(answer)
    return answers


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


REFUSED = {
    "a header of 1 MB": (GET + b"X: " + b"a" * 2**20 + b"\r\n\r\n", 431),
    "100,000 headers": (GET + b"X-Many: 1\r\n" * 100_000 + b"\r\n", 431),
    "a path of 1 MB": (b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\n\r\n", 431),
    "a method of signs": (GET.replace(b"GET", b"G@(T") + b"\r\n", 400),
    "a method not known": (GET.replace(b"GET", b"BREW") + b"\r\n", 405),
    "a method too long": (GET.replace(b"GET", b"G" * 9000) + b"\r\n", 405),
    "no version": (b"GET /healthz\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "no host in HTTP/1.0": (b"GET /healthz HTTP/1.0\r\n\r\n", 400),
    "two hosts": (GET + b"Host: evil.example\r\n\r\n", 400),
    "a foreign host": (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 400),
    "a null in a value": (GET + b"X: a\x00b\r\n\r\n", 400),
    "a null in a name": (GET + b"X\x00: a\r\n\r\n", 400),
    "a null in the path": (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a null in an escaped path": (GET.replace(b"/healthz", b"/%00%ff") + b"\r\n", 404),
    "a space before the colon": (GET + b"X : a\r\n\r\n", 400),
    "a token that is not ASCII": (
        LINE + "Authorization: Bearer ü\u20ac\r\n".encode() + LENGTH + b"\r\n" + BODY,
        401,
    ),
    "a token with high bytes": (
        LINE + b"Authorization: Bearer \xff\xfe\r\n" + LENGTH + b"\r\n" + BODY,
        401,
    ),
    "two lengths": (HEAD + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY, 400),
    "a length below zero": (HEAD + b"Content-Length: -1\r\n\r\n", 400),
    "a length with a sign": (HEAD + b"Content-Length: +5\r\n\r\nabcde", 400),
    "a length with a dash": (HEAD + b"Content-Length: 1_0\r\n\r\n0123456789", 400),
    "a length of 5,000 digits": (
        HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        400,
    ),
    "a length of 19 digits": (
        HEAD + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n",
        413,
    ),
    "a length and chunks": (
        HEAD + JSON + LENGTH + CHUNKED + b"\r\n0\r\n\r\n" + GOOD,
        400,
    ),
    "a length and chunks in a GET": (
        GET + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + GOOD,
        400,
    ),
    "chunks twice": (HEAD + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n", 400),
    "chunks and more": (HEAD + CHUNKED[:-2] + b", identity\r\n\r\n0\r\n\r\n", 400),
    "chunks by another name": (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n", 400),
    "a chunk size of letters": (HEAD + CHUNKED + b"\r\nzz\r\n", 400),
    "a chunk size below zero": (HEAD + CHUNKED + b"\r\n-1\r\n", 400),
    "a chunk size too large": (HEAD + CHUNKED + b"\r\n" + b"f" * 40 + b"\r\n", 400),
    "a chunk size with a null": (HEAD + CHUNKED + b"\r\n1\x00\r\na\r\n", 400),
    "a chunk longer than it says": (HEAD + CHUNKED + b"\r\n1\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk's endless remark": (HEAD + CHUNKED + b"\r\n1;" + b"a" * 50_000, 400),
    "an unknown expectation": (
        HEAD + b"Expect: miracle\r\nContent-Length: 1\r\n\r\n{",
        422,
    ),
    "a body that stops": (HEAD + JSON + LENGTH + b"\r\n" + BODY[:5], 408),
    "another address": (
        b"GET http://evil.example/ HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        404,
    ),
    "a star": (GET.replace(b"/healthz", b"*") + b"\r\n", 404),
    "a tunnel": (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 404),
}


@pytest.mark.parametrize(("request_", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_honest_request_is_refused_in_json(client, request_, status):
    (answer,) = exchange(client, request_)
    assert statuses(answer) == [status], answer
    start, _, body = answer.partition(b"\r\n\r\n")
    assert set(json.loads(body)["error"]) == {"reason", "message"}
    assert b"content-type: application/json" in start.lower()
    assert b"nosniff" in start


def test_an_upgrade_is_not_made(client):
    kinds = (b"websocket", b"h2c")
    asked = [GET + b"Connection: Upgrade\r\nUpgrade: %s\r\n\r\n" % k for k in kinds]
    for answer in exchange(client, *asked):
        assert statuses(answer) == [200]


def test_pipelined_requests_are_answered_in_order(client):
    asked = GET + b"\r\n" + GOOD + GET.replace(b"/healthz", b"/nowhere") + b"\r\n"
    (answer,) = exchange(client, asked * 20)
    assert statuses(answer) == [200, 200, 404] * 20


def test_bytes_behind_an_answer_do_no_harm(client):
    """A bad chunk, where the answer was given before the body had ended."""
    (answer,) = exchange(client, GET + CHUNKED + b"\r\n" + b"zz\r\n")
    assert statuses(answer) in ([200], [400])
    place = (client.base_url.host, client.base_url.port)
    with socket.create_connection(place, timeout=30) as line:
        line.sendall(GET + CHUNKED + b"\r\n")
        answer = line.recv(65536)
        while not answer.endswith(b'{"status":"ok"}'):  # it may come in pieces
            answer += line.recv(65536)
        line.sendall(b"zz\r\n")
        assert line.recv(65536) == b""


def test_spoilt_requests_are_no_faults(client):
    draw = random.Random(5)
    spoilt = [GOOD[: draw.randrange(len(GOOD))] for _ in range(40)]
    for _ in range(160):
        request = bytearray(GOOD)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(request))
            request[place : place + draw.randint(0, 2)] = draw.randbytes(
                draw.randint(0, 2)
            )
        spoilt.append(bytes(request))
    for request, answer in zip(spoilt, exchange(client, *spoilt), strict=True):
        assert all(status < 500 for status in statuses(answer)), request


@pytest.mark.parametrize("depth", [500, 900, 990, 2000, 100_000])
@pytest.mark.parametrize(
    ("before", "opening", "closing"),
    [
        (b'{"texts": ', b"[", b"]"),
        (b'{"texts": "a", "model": ', b'{"a":', b"}"),
        (b'{"texts": "a", "other": ', b"[", b"]"),
        (b"", b'{"texts":', b"}"),
    ],
    ids=["texts", "model", "other", "body"],
)
def test_deep_json_is_refused(client, depth, before, opening, closing):
    end = b"}" if before else b""
    whole = before + opening * depth + b"1" + closing * depth + end
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for body in (whole, before + opening * depth):
        reply = client.post("/v1/predict", content=body, headers=headers)
        assert reply.status_code in (400, 422), reply.text
        assert set(reply.json()["error"]) == {"reason", "message"}
        assert len(reply.text) < 400
