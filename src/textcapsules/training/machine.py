"""The machine: enough memory for the network, and a GPU that is awake in time.

A network that does not fit into memory is an error that names its largest options, not
a crash. A GPU is woken in a thread while the main one reads the texts: the first
product of a process waits for the driver and cuBLAS, and its first Triton kernel until
Triton has hashed its own files (hundreds of megabytes), together about half a second.
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

__all__ = ["awake", "check_memory", "device_memory", "enough_memory", "total_memory"]

COPIES = 4  # in training: weights, gradient and Adam's two moments
log = logging.getLogger(__name__)
# Parts of torch's messages, beside its own class of error for a GPU.
OUT_OF_MEMORY = ("allocate memory", "not enough memory", "Storage size calculation")


def check_memory(config: RunConfig, n_words: int, n_classes: int) -> None:
    """Refuse a network whose weights cannot be held, before any is allocated."""
    if config.model.architecture in CLASSIC:
        return
    if config.text.vectors is not None:  # their size is in the file, not yet read
        config = config.replace(model={"embedding_size": 1})
    try:
        with torch.device("meta"):  # shapes without numbers
            network = build_system(config, n_words=n_words, n_classes=n_classes)
        assert isinstance(network, torch.nn.Module)
        needed = COPIES * sum(
            p.numel() * p.element_size() for p in network.parameters()
        )
    except (RuntimeError, OverflowError):  # too large to be counted
        needed = 2**63
    limit = total_memory()
    if limit is not None and needed > limit:
        raise ConfigError(
            f"the network must fit into memory, {limit:,} bytes; got options that need "
            f"{needed:,} bytes: {largest_options(config)}. Lower the largest of them."
        )


def total_memory() -> int | None:
    """Return this machine's memory in bytes; None if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def device_memory(device: torch.device) -> int | None:
    """Return the memory of the device that trains, in bytes."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return total_memory()


def largest_options(config: RunConfig) -> str:
    """Return the size options that are furthest above their defaults, as flags."""
    ratios: list[tuple[float, str]] = []
    for section in (config.text, config.model, config.baseline):
        assert isinstance(section, TextConfig | ModelConfig | BaselineConfig)
        for spec in fields(section):
            value, default = getattr(section, spec.name), spec.default
            if isinstance(value, tuple) and isinstance(default, tuple):
                value, default = max(value), max(default)
            if type(value) is int and type(default) is int and value > default:
                flag = spec.name.replace("_", "-")
                ratios.append((value / default, f"--{flag} {value}"))
    ratios.sort(reverse=True)
    return ", ".join(text for _, text in ratios[:3]) or "the vocabulary's size"


@contextmanager
def enough_memory(config: RunConfig) -> Iterator[None]:
    """Turn a lack of memory inside the block into an error of one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        refused = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not refused and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        raise TextCapsulesError(
            f"memory must hold a batch of {config.train.batch_size} texts and the "
            f"network; got: {reason.rstrip('.')}. Lower --batch-size, --max-tokens, "
            "--joined or the network's sizes."
        ) from error


@contextmanager
def awake(device: torch.device) -> Iterator[None]:
    """Wake a GPU while the block runs; after the block it is awake."""
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
    """Run the first work; what fails here is reported where it is really used."""
    try:
        first_work(device)
    except Exception as error:
        log.debug("waking %s: %s", device, error)


def first_work(device: torch.device) -> None:
    """Run one product and one kernel, without drawing a random number."""
    poses = torch.ones(16, 16, device=device)
    squash_capsules(poses @ poses, "norm")
