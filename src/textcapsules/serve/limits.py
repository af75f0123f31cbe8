"""How much the service takes on before it says no."""

from dataclasses import dataclass, fields

from textcapsules.errors import ConfigError

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of a request, of a batch, of the queue and of time."""

    max_texts: int = 256  # in a request
    max_explained: int = 16  # of them with explanations, which are long
    max_characters: int = 20_000  # in a text
    max_bytes: int = 2 * 1024 * 1024  # in a request
    queue: int = 1024  # texts waiting; past them, 429
    batch: int = 64  # texts the model reads at once
    batch_wait: float = 0.0  # seconds a batch that is not full waits for more
    time_limit: float = 30.0  # seconds for a body to arrive, and for its answer

    def __post_init__(self) -> None:
        faults = [
            f"{spec.name} must be at least {least}; got {getattr(self, spec.name)}."
            for spec in fields(self)
            if not getattr(self, spec.name) >= (least := LEAST.get(spec.name, 1))
        ]
        if not faults and self.queue < self.max_texts:
            faults.append(
                f"queue must hold the {self.max_texts} texts that a request may have; "
                f"got {self.queue}. Raise --queue or lower --max-texts."
            )
        if faults:
            raise ConfigError(" ".join(faults))


LEAST = {"batch_wait": 0, "time_limit": 0.01}
