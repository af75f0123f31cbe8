"""What the service counts, in the format of Prometheus."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

__all__ = ["Metrics"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The counters of one service, in their own registry."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "textcapsules_requests",
            "Requests answered.",
            ["method", "path", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "textcapsules_request_seconds",
            "Time from a request's arrival to its answer.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.texts = Counter(
            "textcapsules_texts",
            "Texts answered.",
            ["model", "explained"],
            registry=self.registry,
        )
        self.batch_texts = Histogram(
            "textcapsules_batch_texts",
            "Texts the model read at once.",
            buckets=TEXTS,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "textcapsules_batch_seconds",
            "Time the model took for a batch.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.connections = Gauge(
            "textcapsules_connections", "Connections open.", registry=self.registry
        )
        self.cut = Counter(
            "textcapsules_connections_cut",
            "Connections closed because the client was slow or others needed room.",
            ["why"],
            registry=self.registry,
        )
        queue = Gauge(
            "textcapsules_queue_texts", "Texts waiting.", registry=self.registry
        )
        queue.set_function(waiting)

    def count_request(
        self, method: str, path: str, status: int, seconds: float
    ) -> None:
        """Count one answered request."""
        self.requests.labels(method, path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def count_batch(self, texts: int, seconds: float) -> None:
        """Count one batch of the model."""
        self.batch_texts.observe(texts)
        self.batch_seconds.observe(seconds)

    def page(self) -> bytes:
        """Return all counts as Prometheus reads them."""
        return generate_latest(self.registry)
