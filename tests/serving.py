"""A service for tests: in this process, on a real port, with a model that can be held.

Real connections from other threads reach it, while the test keeps its hands on the
model: `Gate` stops it in the middle of a batch.
"""

import functools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn

from textcapsules.deploy.service.answers import Service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits
from textcapsules.deploy.service.run import server_config
from textcapsules.model.classifier import Labels, TextClassifier
from toy import trained_model


@functools.cache
def single_label() -> TextClassifier:
    return TextClassifier.load(trained_model(), "cpu")


@functools.cache
def multi_label(threshold: float = 0.5) -> TextClassifier:
    """Return the same network, for all labels past a threshold."""
    model = TextClassifier.load(trained_model(), "cpu")
    names = model.labels.names
    model.labels = Labels(names, (threshold,) * len(names), "multi-label")
    return model


def toy_service(limits: Limits | None = None) -> Service:
    """Return a service of two models, `pets` and `tags`."""
    models = {"pets": single_label(), "tags": multi_label()}
    return Service(models, limits or Limits(), threads=1)


@contextmanager
def running(service: Service, **options: Any) -> Iterator[httpx2.Client]:
    """Serve on a free port of this machine; yield a client."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(create_app(service, **options), service))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    limits = httpx2.Limits(max_connections=200)
    try:
        with httpx2.Client(base_url=url, timeout=30, limits=limits) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


class Gate:
    """Holds a service's model: `entered` tells that it is inside, `open` lets it go."""

    def __init__(self, service: Service) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.batches: list[list[str]] = []
        work = service.batcher._work

        def held(kind: Any, texts: list[str]) -> Sequence[Any]:
            self.batches.append(texts)
            self.entered.set()
            assert self.open.wait(30)
            return work(kind, texts)

        service.batcher._work = held
