"""All options of one run, the named presets, and runs in TOML and JSON files."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from textcapsules.base.errors import ConfigError
from textcapsules.base.files import read_regular
from textcapsules.config.sections import (
    CAPSULES,
    SECTIONS,
    BaselineConfig,
    DataConfig,
    LossConfig,
    ModelConfig,
    TextConfig,
    TrainConfig,
)

__all__ = [
    "AUTO",
    "DEFAULT_PRESET",
    "ENCODER_PRESET",
    "ENCODER_PRESETS",
    "FORMER",
    "FORMER_SECTIONS",
    "PRESETS",
    "RunConfig",
    "current_sections",
    "default_preset",
    "from_dict",
    "leaves_encoder_open",
    "preset",
    "read_config",
    "read_values",
    "rebase",
    "restore",
]

MAX_BYTES = 1 << 24  # in a file of options


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All options of one run: by default the paper's, which are preset `paper`.

    The field `preset` is the name of the preset that the run started from; a run on
    top of another one comes from the function `preset`.
    """

    preset: str = "paper"
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def replace(self, **sections: Mapping[str, Any]) -> "RunConfig":
        """Return a copy with some fields changed.

        >>> RunConfig().replace(model={"iterations": 5}).model.iterations
        5
        """
        changed = {}
        for name, values in sections.items():
            section = getattr(self, name, None)
            if not dataclasses.is_dataclass(section):
                raise ConfigError(
                    f"section must be one of {', '.join(SECTIONS)}; got {name!r}."
                )
            known = {spec.name for spec in fields(section)}
            for key in values:
                if key not in known:
                    names = ", ".join(sorted(known))
                    raise ConfigError(
                        f"option must be one of [{name}]'s, {names}; got {key!r}."
                    )
            changed[name] = dataclasses.replace(section, **values)  # type: ignore[type-var]
        return dataclasses.replace(self, **changed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """Return the run as TOML, without the options that are None."""
        import tomli_w  # here, since nothing else needs it

        sections = self.to_dict()
        name = sections.pop("preset")
        kept = {
            section: {key: value for key, value in values.items() if value is not None}
            for section, values in sections.items()
        }
        return tomli_w.dumps({"preset": name, **kept})


# What runs did before an option existed, where its default is something else.
FORMER: dict[tuple[str, str], Any] = {
    ("train", "calibrate_on"): "joined",
    ("train", "refuse"): False,
}

# The preset of a run that names none, on the command line and in a file of options:
# without a pretrained encoder, and with one.
DEFAULT_PRESET, ENCODER_PRESET = "best", "encoder-frozen"
ENCODER_PRESETS = (ENCODER_PRESET, "encoder", "encoder-tuned")  # they need an encoder
AUTO = (
    "auto"  # in place of an encoder's name: the texts decide (training.encoder_choice)
)

# Options that say how words are read, which no encoder does.
WORD_OPTIONS = {
    "text": {f.name for f in fields(TextConfig)}
    - {"embed_encoder", "encode_by", "max_tokens"},
    "model": {"embeddings", "embedding_size"},
}

# Former names of sections: files and records that have them stay readable.
FORMER_SECTIONS = {"rival": "baseline"}

# What each preset changes in the defaults, which are the paper's text.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {},
    "released": {
        "model": {
            "stride": 2,
            "capsule_types": 16,
            "transform_bias": False,
            "squash": "released",
            "leaky": False,
            "amendment": False,
            "average": "poses",
            "mask_padding": False,
            "initialiser": "tensorflow",
            "embeddings": "static",
        },
        "loss": {"down_weight": 0.25, "spread_end": 0.2, "orphan_in_loss": True},
        "train": {"select": "last"},
    },
    "sabour": {
        "model": {
            "squash": "sabour",
            "leaky": False,
            "amendment": False,
            "orphan": False,
        }
    },
    # Found by searches on dev alone (reproduction/FINDINGS.md): n-grams of all sizes
    # side by side, also over a text's ends; no convolutional capsules; weights of the
    # children that have the same sum for texts of every length, and beside them a
    # network of peaks, in which no phrase is diluted, each with a loss of its own;
    # a learning rate that rises and falls, and a lower one for word vectors.
    # A linear model of words adds what they say by themselves, if dev texts like it.
    # Thresholds for several labels, one per label, are chosen on single texts and on
    # pairs of unequal parts, in which all labels are equally frequent. Words never seen
    # in training are dropped: their vector would vote as it was drawn.
    "best": {
        "text": {"unknown": "drop", "max_tokens": 400},
        "model": {
            "ngram_sizes": (1, 2, 3, 4, 5),
            "joint": True,
            "embedding_size": 128,  # of random vectors; a file's have their own
            "edges": True,
            "filters": 100,
            "capsule_types": 16,
            "conv_capsules": False,
            "normalise": "total",
            "peaks": True,
            "dropout": 0.4,
        },
        "loss": {"per_branch": True},
        "train": {
            "word_scores": "dev",
            "epochs": None,
            "learning_rate": 2e-3,
            "vector_rate": 0.1,
            "schedule": "linear",
            "warmup": 0.1,
            "weight_decay": 0.01,
            "joined_share": 0.2,
            "joined_by": "labels",
            "thresholds": "per-label",
        },
    },
}

# On a pretrained encoder. Found on dev tickets and on Reuters topics outside the
# tables (reproduction/FINDINGS.md): a smaller network trained for fewer epochs is
# enough, since the states know what words mean; clauses are read by themselves. Peaks
# help on news and opinions, and harm on tickets of several topics.
ON_ENCODER: dict[str, dict[str, Any]] = {
    "text": {**PRESETS["best"]["text"], "encode_by": "clauses"},
    "model": {
        **PRESETS["best"]["model"],
        "ngram_sizes": (1, 3, 5),
        "filters": 64,
        "capsule_types": 8,
        "capsule_size": 32,
        "peaks": False,
    },
    "train": {**PRESETS["best"]["train"], "learning_rate": 3e-3},
}

# On a frozen one. Beside its states, networks of word pieces: found on the same
# documents and tickets.
PRESETS["encoder-frozen"] = {
    **ON_ENCODER,
    "model": {**ON_ENCODER["model"], "piece_size": 128},
    "loss": {"per_branch": True},
}

# The same, and the encoder's last layers learn: better labels for a longer training.
# Found on dev texts (reproduction/FINDINGS.md).
PRESETS["encoder"] = {
    **ON_ENCODER,
    "train": {
        **ON_ENCODER["train"],
        "encoder_training": "light",
        "encoder_layers": 2,
        "encoder_rate": 3e-4,
    },
}

# All of its weights learn, for a few epochs: the usual way to tune an encoder, measured
# on a GPU (reproduction/TABLES.md). Whole texts, so that a step is one pass over it.
PRESETS["encoder-tuned"] = {
    **ON_ENCODER,
    "text": {**ON_ENCODER["text"], "encode_by": "texts"},
    "model": {**ON_ENCODER["model"], "dropout": 0.1},
    "baseline": {"output_dropout": 0.1},
    "train": {
        **ON_ENCODER["train"],
        "epochs": 3,
        "batch_size": 32,
        "learning_rate": 1e-3,
        "clip_norm": 1.0,
        "encoder_training": "tuned",
        "encoder_rate": 5e-5,
        "encoder_decay": 0.95,
    },
}


def preset(name: str) -> RunConfig:
    """Return the run that a preset stands for: every option at its default under it.

    >>> preset("paper") == RunConfig()
    True
    >>> preset(DEFAULT_PRESET).model.dropout
    0.4
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}.")
    return RunConfig(preset=name).replace(**PRESETS[name])


def default_preset(encoder: str | None) -> str:
    """Return the name of the preset that a run on this encoder, or on none, stands on.

    >>> default_preset(None), default_preset("thenlper/gte-small")
    ('best', 'encoder-frozen')
    """
    return DEFAULT_PRESET if encoder in (None, AUTO) else ENCODER_PRESET


def leaves_encoder_open(options: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether options that a user has set, by section, suit any encoder or none.

    >>> leaves_encoder_open({"train": {"epochs": 3}})
    True
    >>> leaves_encoder_open({"text": {"vectors": "w2v.bin"}})
    False
    """
    architecture = options.get("model", {}).get("architecture", CAPSULES[0])
    return architecture in CAPSULES and not any(
        names & options.get(section, {}).keys()
        for section, names in WORD_OPTIONS.items()
    )


def rebase(config: RunConfig, name: str) -> RunConfig:
    """Return what a run changes in its preset, as changes of another preset.

    >>> run = preset("best").replace(train={"epochs": 3})
    >>> moved = rebase(run, "encoder-frozen")
    >>> moved.preset, moved.train.epochs, moved.model.filters
    ('encoder-frozen', 3, 64)
    """
    before, now = preset(config.preset).to_dict(), config.to_dict()
    changes = {
        section: {
            key: value for key, value in now[section].items() if value != options[key]
        }
        for section, options in before.items()
        if section != "preset"
    }
    return preset(name).replace(**changes)


def current_sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections by their current names.

    >>> current_sections({"rival": {"hidden_size": 4}})
    {'baseline': {'hidden_size': 4}}
    """
    for former, current in FORMER_SECTIONS.items():
        if former in values and current in values:
            raise ConfigError(
                f"section must be named [{current}] alone; got [{former}] too, its "
                f"former name. Move those options into [{current}]."
            )
    return {FORMER_SECTIONS.get(name, name): value for name, value in values.items()}


def from_dict(values: Mapping[str, Any], *, encoder: str | None = None) -> RunConfig:
    """Build a run from nested plain values, on top of the preset they name.

    Without a preset, it follows from the encoder: the one given, or theirs.
    """
    sections = current_sections(values)
    text = sections.get("text")
    if encoder is None and isinstance(text, Mapping):
        encoder = text.get("encoder")
    run = preset(sections.pop("preset", default_preset(encoder)))
    return run.replace(**sections)


def restore(values: Mapping[str, Any]) -> RunConfig:
    """Return a finished run from all its options, as `RunConfig.to_dict` gave them.

    Options that a later version has added are at what runs did before (`FORMER`) or
    else at their defaults, even if the run's preset now says something else: that is
    how the run was made.
    """
    sections = current_sections(values)
    name = preset(sections.pop("preset", DEFAULT_PRESET)).preset  # or an error
    run = RunConfig(preset=name)
    for (section, option), value in FORMER.items():
        run = run.replace(**{section: {option: value}})
    return run.replace(**sections)


def read_config(path: Path | str, *, encoder: str | None = None) -> RunConfig:
    """Read a run from a TOML or JSON file; `encoder` is one named beside it."""
    return from_dict(read_values(path), encoder=encoder)


def read_values(path: Path | str) -> dict[str, Any]:
    """Read the preset's name and the sections that a TOML or JSON file has."""
    path = Path(path)
    try:
        content = read_regular(path, MAX_BYTES).decode()
        values = (
            json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path} must be a readable TOML or JSON file; got {reason}."
        ) from error
    except RecursionError as error:
        raise ConfigError(
            f"{path} must hold sections of options; got brackets nested too deep to "
            "be read."
        ) from error
    if not isinstance(values, dict) or not all(
        isinstance(value, dict) or key == "preset" for key, value in values.items()
    ):
        raise ConfigError(
            f"{path} must hold a preset's name and sections {', '.join(SECTIONS)}; "
            "got something else. Start from `textcapsules train --print-config`."
        )
    sections = current_sections(values)
    text = sections.get("text", {})
    if text.get("encoder") == "none":  # as on the command line
        sections["text"] = {**text, "encoder": None}
    return sections
