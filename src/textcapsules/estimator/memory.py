"""A run whose texts lie in memory."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from textcapsules.config import SECTIONS, RunConfig, preset
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import hold_out
from textcapsules.errors import ConfigError
from textcapsules.estimator.inputs import Target, class_names

__all__ = ["make_config", "make_corpus", "seed_of"]

# What describes the caller's texts or their place, and is not the caller's to set.
NOT_OPTIONS = ("source", "data_dir", "fold", "dev", "test", "seed", "device", "task")


def make_config(
    name: str, options: Mapping[str, Any], *, several: bool, seed: int, device: str
) -> RunConfig:
    """Return a preset with options changed, each found in its section by its name."""
    sections: dict[str, dict[str, Any]] = {
        "data": {"source": "texts in memory"},
        # The folder is a temporary one: there is nothing to resume.
        "train": {"checkpoint_seconds": 1e9, "seed": seed, "device": device},
    }
    if several:
        sections["train"]["task"] = "multi-label"
    places = {
        spec.name: section
        for section, kind in SECTIONS.items()
        for spec in fields(kind)
        if spec.name not in NOT_OPTIONS
    }
    for option, value in options.items():
        if option not in places:
            names = ", ".join(sorted(places))
            raise ConfigError(f"options must be among {names}; got {option!r}.")
        sections.setdefault(places[option], {})[option] = value
    return preset(name).replace(**sections)


def seed_of(random_state: Any) -> int:
    """Return the seed that a `random_state` of scikit-learn stands for."""
    if isinstance(random_state, int | np.integer) and not isinstance(
        random_state, bool
    ):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def make_corpus(texts: list[str], target: Target, config: RunConfig) -> Corpus:
    """Return texts and labels as a corpus, its dev set held out by class."""
    names, data = class_names(target.classes), config.data
    examples = [
        Example(text, tuple(names[place] for place in places))
        for text, places in zip(texts, target.places, strict=True)
    ]
    kept, held = hold_out(target.places, data.dev_fraction, data.split_seed)
    return Corpus(
        name="texts",
        labels=names,
        train=[examples[row] for row in kept],
        dev=[examples[row] for row in held],
        test=[],
        task="single-label" if target.form == "single" else "multi-label",
        rule="words",
        facts={"title": "texts in memory", "seed": data.split_seed},
    )
