import builtins
import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields

import httpx2
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from textcapsules.base.errors import ConfigError
from textcapsules.cli.serve import announce
from textcapsules.deploy.service.limits import Limits
from textcapsules.deploy.service.run import (
    is_loopback,
    listening_socket,
    name_models,
    read_token,
)
from textcapsules.model.classifier import TextClassifier
from toy import model_copy, refusal, run_cli, trained_model

pytestmark = pytest.mark.slow

# A model that says when it reads a single text, and does not finish before a file is
# there.
HELD = """
import sys, time
from pathlib import Path
from textcapsules.model.classifier import TextClassifier
quick = TextClassifier.read
def held(self, texts):
    if len(texts) == 1:
        sys.stderr.write("reading\\n")
        sys.stderr.flush()
        while not Path({gate!r}).exists():
            time.sleep(0.01)
    return quick(self, texts)
TextClassifier.read = held
"""


# The demonstration on few tickets.
SMALL_DEMO = """
import functools
from textcapsules.lab import demo
from textcapsules.data import load, tickets
demo.read_tickets = load.read_tickets = functools.partial(
    tickets.read_tickets, n_train=60, n_dev=20, n_test=20, n_multi=10
)
whole = demo.demo_config()
demo.demo_config = lambda encoder=None: whole.replace(
    model={"embedding_size": 8, "capsule_types": 2, "capsule_size": 4},
    train={"epochs": 1},
)
"""


@contextmanager
def served(*args, setup=""):
    """Start the program; yield it and a client of it; kill it if it still runs."""
    program = f"{setup}\nfrom textcapsules.cli import main; main()"
    flags = map(str, (*args, "--port", 0, "--json"))
    command = [sys.executable, "-c", program, *flags]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell's background job, as a test run may be, has Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout
    assert process.stderr
    try:
        line = b""
        while b'"url"' not in line:
            line = process.stdout.readline()
            assert line, process.stderr.read()
        with httpx2.Client(base_url=json.loads(line)["url"], timeout=60) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def ask(client, text):
    return client.post("/v1/predict", json={"texts": text}).json()["predictions"][0]


def waiting_texts(client) -> float:
    lines = client.get("/metrics").text.splitlines()
    (line,) = (one for one in lines if one.startswith("textcapsules_queue_texts "))
    return float(line.split()[1])


def listens(client) -> bool:
    try:
        socket.create_connection((client.base_url.host, client.base_url.port)).close()
    except OSError:
        return False
    return True


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sigterm_lets_the_service_finish_what_it_accepted(tmp_path):
    gate = tmp_path / "gate"
    setup = HELD.format(gate=str(gate))
    with (
        served("serve", trained_model(), "--batch", 1, setup=setup) as (
            process,
            client,
        ),
        ThreadPoolExecutor(2) as pool,
    ):
        running = pool.submit(ask, client, "my cat purr")
        assert process.stderr
        assert process.stderr.readline() == b"reading\n"
        waiting = pool.submit(ask, client, "a dog bark")
        until(lambda: waiting_texts(client) == 1)
        process.send_signal(signal.SIGTERM)
        until(lambda: not listens(client))
        gate.touch()
        answers = [running.result(), waiting.result()]
        out, err = process.communicate(timeout=60)
    assert [answer["labels"] for answer in answers] == [["cats"], ["dogs"]]
    assert process.returncode == 0
    assert (out, err) == (b"", b"reading\n")  # the JSON line was the last


@pytest.fixture(scope="module")
def service():
    names = (f"pets={trained_model()}", trained_model())
    with served("serve", *names, "--access-log") as (process, client):
        yield process, client


def test_models_have_names_and_the_page_is_there(service):
    _, client = service
    models = client.get("/v1/models").json()["models"]
    assert [model["name"] for model in models] == ["pets", "model"]
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "<h1>textcapsules</h1>" in page.text


def test_a_port_in_use_is_one_line(service):
    _, client = service
    port = client.base_url.port
    message = refusal("serve", trained_model(), "--port", port)
    assert message == (
        f"port must be free; got {port} on 127.0.0.1: Address already in use. Name "
        "another with --port, or 0 for any."
    )


def test_the_log_has_a_line_a_request_and_no_text(service):
    process, client = service
    client.get("/healthz")
    client.post("/v1/predict", json={"model": "pets", "texts": "a secret cat"})
    client.get("/secret", params={"text": "secret"})
    seen = []
    while not any("other 404" in line for line in seen):
        seen.append(process.stderr.readline().decode())
    assert any("GET /healthz 200" in line for line in seen)
    assert any("POST /v1/predict 200" in line for line in seen)
    assert "secret" not in "".join(seen)


def test_the_demo_ends_in_the_running_page(tmp_path):
    out = tmp_path / "demo"
    with served("demo", "--serve", "--out", out, setup=SMALL_DEMO) as (process, client):
        (model,) = client.get("/v1/models").json()["models"]
        page = client.get("/")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert model["name"] == "demo"
    assert "billing" in [label["name"] for label in model["labels"]]
    assert "<h1>textcapsules</h1>" in page.text
    assert (out / "report.html").exists()


def test_the_demo_does_not_train_for_a_port_in_use(service, tmp_path):
    _, client = service
    port, out = client.base_url.port, tmp_path / "demo"
    message = refusal("demo", "--serve", "--port", port, "--out", out)
    assert message.startswith(f"port must be free; got {port}")
    assert not out.exists()


def test_a_folder_that_is_no_model_is_one_line(tmp_path):
    message = refusal("serve", tmp_path, "--port", 0)
    assert message.startswith(f"{tmp_path} must be a model folder; got one without")
    file = tmp_path / "file"
    file.touch()
    assert "must be a model folder" in refusal("serve", file, "--port", 0)


def test_a_newer_model_is_one_line(tmp_path):
    folder = model_copy(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "format": 99}))
    message = refusal("serve", folder, "--port", 0)
    assert message.endswith("must be of format 1; got 99. Update textcapsules.")


def test_a_model_that_cannot_score_is_one_line(tmp_path, monkeypatch):
    def broken(classifier, texts):
        return np.full((len(texts), 3), np.nan, np.float32)

    monkeypatch.setattr(TextClassifier, "scores", broken)
    message = refusal("serve", trained_model(), "--port", 0)
    assert message.startswith(f"{trained_model()} must hold a model with finite scores")


def test_a_model_with_spoilt_weights_is_one_line(tmp_path):
    folder = model_copy(tmp_path)
    weights = load_file(folder / "model.safetensors")
    spoilt = {name: np.full_like(part, np.nan) for name, part in weights.items()}
    save_file(spoilt, folder / "model.safetensors")
    assert str(folder) in refusal("serve", folder, "--port", 0)


def test_two_models_of_one_name_are_one_line(tmp_path):
    message = refusal("serve", trained_model(), model_copy(tmp_path), "--port", 0)
    assert message.startswith("models must have different names; got 'model' twice.")


@pytest.mark.parametrize("missing", ["fastapi", "prometheus_client", "uvicorn"])
def test_a_missing_extra_is_one_line(monkeypatch, missing):
    real = builtins.__import__

    def no_extra(name, *args, **kwargs):
        if name.partition(".")[0] == missing:
            raise ImportError(name=missing)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_extra)
    monkeypatch.setitem(sys.modules, missing, None)
    message = refusal("serve", trained_model(), "--port", 0)
    assert message == (
        f"{missing} must be installed to serve; got none. "
        "Run `pip install 'textcapsules[serve]'`."
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--host", "0.0.0.0"], "host must be 127.0.0.1 where no token is asked for"),
        (["--host", "example.invalid"], "host must be 127.0.0.1 where no token"),
        (["--port", "65536"], "port must be from 0 to 65535; got 65536"),
        (["--cors", "example.org"], "cors must be an origin as https://example.org"),
        (["--cors", "https://a.b/c"], "got 'https://a.b/c'"),
        (["--queue", "10"], "queue must hold the 256 texts"),
        (["--max-texts", "0"], "max_texts must be a whole number of at least 1"),
        (["--time-limit", "0"], "time_limit must be a finite number of at least 0.01"),
        (["--batch-wait", "inf"], "batch_wait must be a finite number of at least 0"),
        (["--token-file", "nowhere"], "got No such file or directory for nowhere"),
        (["--device", "tpu"], "device must be"),
    ],
    ids=lambda value: str(value),
)
def test_options_that_cannot_work_are_one_line(flags, message):
    assert message in refusal("serve", trained_model(), "--port", 0, *flags)


NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e30", "9" * 30)
ZEROS = ("port", "batch-wait", "max-per-address")  # take a zero


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize(
    "flag",
    [
        "port",
        "threads",
        *(
            f.name.replace("_", "-")
            for f in fields(Limits)
            if f.name != "max_explained"
        ),
    ],
)
def test_numbers_that_cannot_work_are_one_line(flag, value):
    if value == "0" and flag in ZEROS:
        return
    message = refusal("serve", trained_model(), f"--{flag}={value}")
    assert flag in message.replace("_", "-")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"with a space in the token",
        b"two-lines-of\ntokens-in-a-file",
        "ü".encode() * 20,
        b"\xff" * 20,
    ],
)
def test_a_token_file_without_a_token_is_refused(tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="token-file must") as refused:
        read_token(file)
    assert content.decode("latin-1") not in str(refused.value) or not content


def test_a_token_is_read_without_its_line_end(tmp_path):
    (tmp_path / "token").write_bytes(b"0123456789abcdef\r\n")
    assert read_token(tmp_path / "token") == "0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_the_rest(host, expected):
    assert is_loopback(host) == expected


def test_connections_do_not_hold_small_packets_back():
    with listening_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio goes by


def test_models_are_named_by_folder_or_by_hand(tmp_path):
    odd = tmp_path / "a=b"
    odd.mkdir()
    named = name_models(["runs/demo/", f"x={tmp_path}", str(odd), "y=c=d"])
    assert {name: str(path) for name, path in named.items()} == {
        "demo": "runs/demo",
        "x": str(tmp_path),
        "a=b": str(odd),
        "y": "c=d",
    }


def test_a_link_to_a_model_gives_it_its_own_name(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "demo").symlink_to(tmp_path / "run" / "model")
    assert list(name_models([str(tmp_path / "demo")])) == ["demo"]
    assert list(name_models([str(tmp_path / "run" / "model" / "..")])) == ["run"]


def test_limits_name_every_fault_at_once():
    with pytest.raises(
        ConfigError, match=r"max_texts must .* batch must be a whole number"
    ):
        Limits(max_texts=-1, batch=0)


def test_people_are_told_the_address(capsys):
    announce(json=False)("http://127.0.0.1:1/", ["a", "b"])
    assert capsys.readouterr().out == "a, b at http://127.0.0.1:1/ (Ctrl-C to stop)\n"


def test_help_fits_and_shows_examples(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = [line.strip() for line in run_cli("serve", "--help").out.splitlines()]
    assert "textcapsules serve runs/demo/model" in lines
    assert max(map(len, lines)) <= 80
