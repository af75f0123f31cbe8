"""Python's collector of reference cycles, paused where all that is made stays.

PyTorch and what it imports are hundreds of thousands of objects. The collector would go
through all of them again and again while they are imported, and once more as the
process ends: a quarter of the CPU time of a short command.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let a command import without the collector, which then leaves all of it alone.

    Of a process that calls several commands, only the first one's imports are left
    alone: garbage among them would stay for ever.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
        if was_on:
            gc.enable()
