"""Load on `textcapsules serve`: throughput, latency, faults and memory.

Starts the service as a separate process and sends it requests from this one. Every
client has one connection and sends one request after the other. Every answer is
compared with that of `TextClassifier.predict`.

    python benchmarks/serve_load.py runs/demo/model --seconds 60 --out load.json
"""

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from textcapsules.data.tickets import read_tickets
from textcapsules.model.classifier import TextClassifier

WARM_UP = 200  # requests before the memory is first measured


class Load:
    """The requests of some clients, their times and their outcomes."""

    def __init__(
        self, port: int, requests: list[tuple[bytes, list[list[str]]]]
    ) -> None:
        self.port, self.requests = port, requests
        self.seconds: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.stop = threading.Event()

    def client(self, first: int) -> None:
        """Send one request after the other until `stop` is set."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        place = first
        while not self.stop.is_set():
            body, expected = self.requests[place % len(self.requests)]
            started = time.perf_counter()
            status, reply = ask(connection, body)
            self.seconds.append(time.perf_counter() - started)
            self.outcomes[outcome(status, reply, expected)] += 1
            place += 1
        connection.close()

    def run(self, clients: int, seconds: float, at_least: int = 0) -> float:
        """Send requests for some seconds, and at least so many; return the seconds."""
        self.stop.clear()
        step = len(self.requests) // clients
        threads = [
            threading.Thread(target=self.client, args=(n * step,))
            for n in range(clients)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        while (
            time.perf_counter() - started < seconds
            or sum(self.outcomes.values()) < at_least
        ):
            time.sleep(0.1)
        self.stop.set()
        for thread in threads:
            thread.join()
        return time.perf_counter() - started


def ask(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
    """Send one request; a broken connection is status 0."""
    try:
        connection.request(
            "POST", "/v1/predict", body, {"Content-Type": "application/json"}
        )
        reply = connection.getresponse()
        return reply.status, reply.read()
    except OSError:
        connection.close()
        return 0, b""


def outcome(status: int, reply: bytes, expected: list[list[str]]) -> str:
    """Return `right`, or what was wrong with an answer."""
    if status != 200:
        return f"status {status}"
    labels = [one["labels"] for one in json.loads(reply)["predictions"]]
    return "right" if labels == expected else "wrong labels"


def make_requests(
    model: Path, texts_each: int, explain: bool
) -> list[tuple[bytes, list[list[str]]]]:
    """Return bodies made of test tickets, and the labels expected for each."""
    texts = [example.text for example in read_tickets("tickets-multi").test]
    predictions = TextClassifier.load(model, "cpu").predict(texts)
    labels = [list(prediction.labels) for prediction in predictions]
    requests = []
    for place in range(0, len(texts) - texts_each + 1, texts_each):
        some = slice(place, place + texts_each)
        body = json.dumps({"texts": texts[some], "explain": explain}).encode()
        requests.append((body, labels[some]))
    return requests


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def start_service(model: Path, flags: list[str]) -> tuple[subprocess.Popen, int]:
    """Start the service; return it and its port."""
    program = "from textcapsules.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", str(model), "--port", "0"]
    service = subprocess.Popen(
        [*command, "--json", "--device", "cpu", *flags], stdout=subprocess.PIPE
    )
    assert service.stdout is not None
    url = json.loads(service.stdout.readline())["url"]
    port = urlsplit(url).port
    assert port is not None
    return service, port


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Send the load and return its record."""
    requests = make_requests(options.model, options.texts, options.explain)
    service, port = start_service(options.model, options.flags)
    try:
        Load(port, requests).run(options.clients, 0, WARM_UP)
        memory = [memory_mib(service.pid)]
        load = Load(port, requests)
        pause = threading.Event()

        def watch() -> None:
            while not pause.wait(1):
                memory.append(memory_mib(service.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        seconds = load.run(options.clients, options.seconds, options.requests)
        pause.set()
        watcher.join()
        memory.append(memory_mib(service.pid))
    finally:
        service.send_signal(signal.SIGTERM)
        code = service.wait(60)
    n_requests = sum(load.outcomes.values())
    percentiles = statistics.quantiles(load.seconds, n=100)
    return {
        "clients": options.clients,
        "texts_each": options.texts,
        "explain": options.explain,
        "flags": options.flags,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "seconds": round(seconds, 1),
        "requests": n_requests,
        "requests_per_second": round(n_requests / seconds, 1),
        "texts_per_second": round(options.texts * n_requests / seconds, 1),
        "p50_ms": round(1000 * percentiles[49], 2),
        "p99_ms": round(1000 * percentiles[98], 2),
        "max_ms": round(1000 * max(load.seconds), 2),
        "outcomes": dict(load.outcomes),
        "memory_mib": {
            "start": round(memory[0], 1),
            "end": round(memory[-1], 1),
            "peak": round(max(memory), 1),
            "tenths": [round(memory[len(memory) * n // 10], 1) for n in range(10)],
        },
        "exit_code": code,
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description="Load on `textcapsules serve`.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--requests", type=int, default=0, help="at least so many")
    parser.add_argument("--texts", type=int, default=1, help="per request")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--out", type=Path)
    options, options.flags = parser.parse_known_args()
    record = json.dumps(measure(options), indent=2)
    if options.out:
        options.out.write_text(record + "\n", encoding="utf-8")
    sys.stdout.write(record + "\n")


if __name__ == "__main__":
    main()
