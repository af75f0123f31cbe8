"""How much the service accepts before it refuses."""

from dataclasses import dataclass

from textcapsules.base.errors import ConfigError
from textcapsules.config.options import Checked, option

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits(Checked):
    """Limits of a request, a batch, the queue, connections and time."""

    max_texts: int = option(256, "Texts in a request.", low=1, high=1_000_000)
    max_explained: int = option(
        16, "Texts in a request with explanations, which are long.", low=1
    )
    max_characters: int = option(
        20_000, "Characters of a text.", low=1, high=100_000_000
    )
    max_bytes: int = option(2**21, "Bytes of a request's body.", low=1, high=2**30)
    queue: int = option(1024, "Texts that may wait.", low=1, high=1_000_000)
    batch: int = option(64, "Texts the model reads at once.", low=1, high=1_000_000)
    batch_wait: float = option(
        0.0, "Seconds a batch that is not full waits for more.", low=0, high=60
    )
    time_limit: float = option(
        30.0,
        "Seconds for a body to arrive, for its answer, and for the client to take it.",
        low=0.01,
        high=86_400,
    )
    header_limit: float = option(
        10.0, "Seconds for a request's headers to arrive.", low=0.01, high=3600
    )
    idle_limit: float = option(
        15.0, "Seconds a connection stays open between requests.", low=0.01, high=3600
    )
    max_connections: int = option(
        1024, "Connections open at a time.", low=1, high=100_000
    )
    max_per_address: int = option(
        256, "Connections per client address; 0: no limit.", low=0, high=100_000
    )

    def __post_init__(self) -> None:
        """Check every field, then those that must fit together."""
        super().__post_init__()
        if self.queue < self.max_texts:
            raise ConfigError(
                f"queue must hold the {self.max_texts} texts that a request may have; "
                f"got {self.queue}. Raise --queue or lower --max-texts."
            )
