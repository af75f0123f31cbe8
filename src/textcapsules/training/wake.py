"""Wake a GPU while the texts are being read.

A process's first product waits for the driver and cuBLAS, its first Triton kernel for
Triton to hash its own files (hundreds of megabytes): together about half a second, in
which the main thread has other things to do.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import torch

from textcapsules.model.routing import squash_capsules

__all__ = ["awake"]

log = logging.getLogger(__name__)


@contextmanager
def awake(device: torch.device) -> Iterator[None]:
    """Wake a GPU beside the block; past its end the GPU is awake."""
    if device.type != "cuda":
        yield
        return
    thread = Thread(target=wake, args=(device,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()  # a capture must not begin while another thread uses the GPU


def wake(device: torch.device) -> None:
    """Run a product and a kernel; what fails here is told where it is really used."""
    try:
        first_work(device)
    except Exception as error:
        log.debug("waking %s: %s", device, error)


def first_work(device: torch.device) -> None:
    """Run one of each, without drawing a random number."""
    poses = torch.ones(16, 16, device=device)
    squash_capsules(poses @ poses, "norm")
