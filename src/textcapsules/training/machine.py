"""A network that does not fit into memory is told by its options, not by a crash.

Wake a GPU while the texts are being read.

A process's first product waits for the driver and cuBLAS, its first Triton kernel for
Triton to hash its own files (hundreds of megabytes): together about half a second, in
which the main thread has other things to do.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from threading import Thread

import torch

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.config import (
    CLASSIC,
    BaselineConfig,
    ModelConfig,
    RunConfig,
    TextConfig,
)
from textcapsules.model.builder import build_system
from textcapsules.model.routing import squash_capsules

__all__ = ["awake", "check_memory", "enough_memory", "total_memory"]

COPIES = 4  # of the weights while they are learnt: gradient and Adam's two moments too
# How torch words it, beside its own class of error for a GPU.
REFUSALS = ("allocate memory", "not enough memory", "Storage size calculation")


def check_memory(config: RunConfig, n_words: int, n_classes: int) -> None:
    """Refuse a network whose weights cannot be held, before any is allocated."""
    if config.model.architecture in CLASSIC:
        return
    if config.text.vectors is not None:  # their size is the file's, not yet known
        config = config.replace(model={"embedding_size": 1})
    try:
        with torch.device("meta"):  # shapes without numbers
            network = build_system(config, n_words=n_words, n_classes=n_classes)
        assert isinstance(network, torch.nn.Module)
        needed = COPIES * sum(
            p.numel() * p.element_size() for p in network.parameters()
        )
    except (RuntimeError, OverflowError):  # more than can be counted
        needed = 2**63
    limit = total_memory()
    if limit is not None and needed > limit:
        raise ConfigError(
            f"the network must fit into memory, {limit:,} bytes; got options that need "
            f"{needed:,} bytes: {largest_options(config)}. Lower the largest of them."
        )


def total_memory() -> int | None:
    """Return this machine's memory in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def largest_options(config: RunConfig) -> str:
    """Return the size options that are furthest above their defaults, as flags."""
    found: list[tuple[float, str]] = []
    for section in (config.text, config.model, config.baseline):
        assert isinstance(section, TextConfig | ModelConfig | BaselineConfig)
        for spec in fields(section):
            value, default = getattr(section, spec.name), spec.default
            if isinstance(value, tuple) and isinstance(default, tuple):
                value, default = max(value), max(default)
            if type(value) is int and type(default) is int and value > default:
                flag = spec.name.replace("_", "-")
                found.append((value / default, f"--{flag} {value}"))
    found.sort(reverse=True)
    return ", ".join(text for _, text in found[:3]) or "the vocabulary's size"


@contextmanager
def enough_memory(config: RunConfig) -> Iterator[None]:
    """Say in one line that memory ran out while the block worked."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        refused = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not refused and not any(words in str(error) for words in REFUSALS):
            raise
        raise TextCapsulesError(
            f"memory must hold a batch of {config.train.batch_size} texts and the "
            f"network; got: {reason.rstrip('.')}. Lower --batch-size, --max-tokens, "
            "--joined or the network's sizes."
        ) from error


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
