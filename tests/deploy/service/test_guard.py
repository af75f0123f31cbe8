import socket
from contextlib import suppress

import pytest
from starlette.testclient import TestClient

from serving import running, toy_service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits

pytestmark = pytest.mark.slow

TOKEN = "s3cret-s3cret-s3cret"
OPEN = ["/", "/app.js", "/style.css", "/icon.svg", "/healthz", "/readyz"]
CLOSED = ["/v1/models", "/metrics", "/openapi.json"]
ORIGIN = "https://example.org"


def opened(**options):
    options = {"hosts": ["testserver"], **options}
    return TestClient(create_app(toy_service(), **options))


@pytest.mark.parametrize("path", [*OPEN, *CLOSED, "/nowhere", "/v1/predict"])
def test_every_answer_has_the_security_headers(path):
    with opened() as client:
        headers = client.get(path).headers
    policy = dict(
        part.split(" ", 1) for part in headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        "Bearer ü",
    ],
)
def test_without_the_token_the_service_is_closed(given):
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    with opened(token=TOKEN) as client:
        for path in CLOSED:
            reply = client.get(path, headers=headers)
            assert reply.status_code == 401, path
            assert reply.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in reply.text
        reply = client.post("/v1/predict", json={"texts": "a"}, headers=headers)
        assert reply.status_code == 401


def test_with_the_token_the_service_is_open():
    with opened(token=TOKEN) as client:
        for path in CLOSED:
            reply = client.get(path, headers={"Authorization": f"bearer {TOKEN}"})
            assert reply.status_code == 200, path


def test_the_page_and_the_health_checks_need_no_token():
    with opened(token=TOKEN) as client:
        assert [client.get(path).status_code for path in OPEN] == [200] * len(OPEN)


def test_other_origins_may_call_only_if_asked_for():
    ask = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    with opened() as client:
        assert client.options("/v1/predict", headers=ask).status_code == 405
    with opened(origins=[ORIGIN], token=TOKEN) as client:
        reply = client.options("/v1/predict", headers=ask)
        assert reply.status_code == 200  # a browser asks without the token
        assert reply.headers["access-control-allow-origin"] == ORIGIN
        other = {**ask, "Origin": "https://evil.example"}
        reply = client.options("/v1/predict", headers=other)
        assert "access-control-allow-origin" not in reply.headers
        refused = client.post("/v1/predict", headers={"Origin": ORIGIN})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost:9", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("", 400),
    ],
)
def test_only_names_of_this_machine_are_answered(host, status):
    with TestClient(create_app(toy_service())) as client:
        reply = client.get("/v1/models", headers={"Host": host})
        assert reply.status_code == status
        if status == 400:
            assert reply.json()["error"]["reason"] == "bad_request"


def talk(client, *parts: bytes) -> bytes:
    """Send raw bytes and return all that comes back.

    A server that refuses what it has not read to its end may reset the connection
    after its answer.
    """
    answer = b""
    with (
        socket.create_connection((client.base_url.host, client.base_url.port)) as line,
        suppress(ConnectionError),
    ):
        line.settimeout(30)
        with suppress(ConnectionError):
            for part in parts:
                line.sendall(part)
        while part := line.recv(65536):
            answer += part
    return answer


def head(*lines: str) -> bytes:
    start = ("POST /v1/predict HTTP/1.1", "Host: 127.0.0.1", "Connection: close")
    return "\r\n".join((*start, *lines, "", "")).encode()


def test_a_body_that_never_ends_is_refused():
    service = toy_service(Limits(max_bytes=1000))
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    with running(service) as client:
        answer = talk(client, head("Transfer-Encoding: chunked"), *[chunk] * 3)
        assert b" 413 " in answer.splitlines()[0]
        assert client.get("/healthz").status_code == 200


def test_a_body_announced_too_long_is_refused_unread():
    with running(toy_service(Limits(max_bytes=1000))) as client:
        answer = talk(client, head("Content-Length: 999999999"))
        assert b" 413 " in answer.splitlines()[0]


def test_a_body_that_is_a_little_too_long_is_read_to_its_end_and_refused():
    with running(toy_service(Limits(max_bytes=100_000))) as client:
        for n_bytes in (100_001, 700_000):
            reply = client.post("/v1/predict", content=b"x" * n_bytes)
            assert reply.status_code == 413
            assert "at most 100000 bytes" in reply.json()["error"]["message"]


def test_a_body_that_does_not_come_is_given_up():
    with running(toy_service(Limits(time_limit=0.2))) as client:
        answer = talk(client, head("Content-Length: 100"), b'{"texts"')
        assert b" 408 " in answer.splitlines()[0]


def test_a_client_that_hangs_up_leaves_no_trace():
    with running(toy_service()) as client:
        for _ in range(3):
            line = socket.create_connection(
                (client.base_url.host, client.base_url.port)
            )
            line.sendall(head("Content-Length: 100") + b'{"te')
            line.close()
        assert client.get("/readyz").status_code == 200
