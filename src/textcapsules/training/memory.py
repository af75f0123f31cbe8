"""A network that does not fit into memory is told by its options, not by a crash."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import torch

from textcapsules.config import CLASSIC, ModelConfig, RivalConfig, RunConfig, TextConfig
from textcapsules.errors import ConfigError, TextCapsulesError
from textcapsules.model.builder import build_system

__all__ = ["check_memory", "enough_memory", "total_memory"]

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
    for section in (config.text, config.model, config.rival):
        assert isinstance(section, TextConfig | ModelConfig | RivalConfig)
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
