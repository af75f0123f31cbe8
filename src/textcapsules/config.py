"""Every option of a run: one frozen dataclass a concern, all of them in `RunConfig`.

A field is declared once, with its default and its help text; the TOML key, the JSON key
and the command-line flag follow from it. The defaults are what the paper says; where it
is silent, the field's help says what was chosen. Resolution order, later wins:
defaults, preset, TOML or JSON file, command-line flags.
"""

import dataclasses
import json
import operator
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from textcapsules.errors import ConfigError

__all__ = [
    "PRESETS",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
    "RunConfig",
    "TextConfig",
    "TrainConfig",
    "preset",
    "read_config",
]


def option(default: Any, help: str, **bounds: float) -> Any:
    """Declare a field: its default, its help text, and bounds (keys of `BOUNDS`)."""
    return field(default=default, metadata={"help": help, **bounds})


# How a bound is told, and what it allows.
BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "low": ("of at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}


class Checked:
    """Validates every field against its type and bounds, all faults in one message."""

    def __post_init__(self) -> None:
        """Normalise lists to tuples, then report every fault at once."""
        faults = []
        hints = typing.get_type_hints(type(self))
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, spec.name, value)
            expected = _fault(value, hints[spec.name], spec.metadata)
            if expected:
                faults.append(f"{spec.name} must be {expected}; got {value!r}")
            elif isinstance(value, int) and hints[spec.name] is float:
                object.__setattr__(self, spec.name, float(value))
        if faults:
            raise ConfigError("; ".join(faults) + ".")


def _fault(value: Any, hint: Any, bounds: Mapping[str, Any]) -> str:
    """Say what `value` should have been, or return nothing if it is right."""
    if isinstance(hint, types.UnionType):  # `X | None`
        if value is None:
            return ""
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        choices = ", ".join(map(repr, arguments))
        return "" if value in arguments else f"one of {choices}"
    if origin is tuple:
        inner = isinstance(value, tuple) and value
        wrong = not inner or any(_fault(item, arguments[0], bounds) for item in value)
        return f"a list, each {_expected(arguments[0], bounds)}" if wrong else ""
    kinds = (int, float) if hint is float else hint
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        return _expected(hint, bounds)
    if hint is float and not abs(value) <= sys.float_info.max:  # NaN fails too
        return _expected(hint, bounds)
    kept = all(BOUNDS[key][1](value, bounds[key]) for key in bounds if key in BOUNDS)
    return "" if kept else _expected(hint, bounds)


def _expected(hint: type, bounds: Mapping[str, Any]) -> str:
    names = {int: "a whole number", float: "a finite number", bool: "true or false"}
    limits = [
        f"{words} {bounds[key]}" for key, (words, _) in BOUNDS.items() if key in bounds
    ]
    return " ".join([names.get(hint, "a text"), " and ".join(limits)]).strip()


@dataclass(frozen=True, kw_only=True)
class DataConfig(Checked):
    """Where the texts come from."""

    source: str = option("tickets", "A corpus of the catalogue, or a file of texts")
    data_dir: str | None = option(None, "Folder of corpora (or TEXTCAPSULES_DATA)")
    fold: int = option(
        0, "Which tenth is the test set, if none is given", low=0, high=9
    )
    text_column: str = option("text", "Name of the file's text column")
    label_column: str = option("label", "Name of the file's label column")
    separator: str | None = option(None, "What parts several labels in one cell")
    dev: str | None = option(None, "A file of development texts")
    test: str | None = option(None, "A file of test texts")
    dev_fraction: float = option(
        0.1,
        "Share of the training texts held out if no dev set is given",
        above=0.0,
        below=1.0,
    )
    split_seed: int = option(0, "Seed of the splits, apart from training's", low=0)


@dataclass(frozen=True, kw_only=True)
class TextConfig(Checked):
    """How texts become numbers."""

    rule: Literal["auto", "kim", "reuters", "words"] = option(
        "auto", "Tokenisation; auto takes the corpus's own, `words` for a user's file"
    )
    min_count: int = option(1, "Words rarer than this are unknown", low=1)
    max_words: int = option(
        200_000, "Size of the vocabulary, most frequent first", low=1
    )
    max_tokens: int = option(200, "Tokens read of a text; the rest is cut", low=1)
    vectors: str | None = option(None, "Word vectors: .npz, word2vec .bin/.txt, GloVe")
    words_from: Literal["train", "corpus", "vectors"] = option(
        "corpus",
        "Besides training words, give a row to words with a vector that occur in the "
        "corpus's other texts (Kim's habit; labels unused), or to all of the vectors",
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The network, in the paper's symbols where it has one."""

    architecture: Literal["capsule-a", "capsule-b"] = option(
        "capsule-b", "capsule-a: one n-gram size; capsule-b: several, averaged"
    )
    ngram_sizes: tuple[int, ...] = option(
        (3, 4, 5), "K1, one network each; capsule-a takes the first", low=1
    )
    embeddings: Literal["random", "static", "non-static"] = option(
        "non-static", "Word vectors: drawn, fixed, or trained on ('to initialize')"
    )
    embedding_size: int = option(
        300, "V; the size of the vectors where they are given", low=1
    )
    filters: int = option(32, "B, filters of the n-gram convolution", low=1)
    stride: int = option(1, "Step of the n-gram convolution over words", low=1)
    capsule_types: int = option(32, "C, primary capsules at each position", low=1)
    capsule_size: int = option(16, "d, size of every capsule's pose", low=1)
    conv_capsules: bool = option(
        True, "Keep the convolutional capsule layer (off: the visualisation model)"
    )
    conv_window: int = option(3, "K2, positions a convolutional capsule sees", low=1)
    conv_types: int = option(16, "D, convolutional capsules at each position", low=1)
    shared: bool = option(True, "One transform a parent, shared by all its children")
    transform_bias: bool = option(True, "Votes have a bias")
    iterations: int = option(3, "Iterations of routing", low=1)
    leaky: bool = option(True, "Leaky softmax: a child may route to nobody")
    amendment: bool = option(True, "Couplings are scaled by the child's length")
    orphan: bool = option(True, "A further parent for background, hidden from results")
    squash: Literal["norm", "sabour", "released", "exp", "tanh", "none"] = option(
        "norm", "Length of a squashed pose as a function of its norm"
    )
    average: Literal["lengths", "poses"] = option(
        "lengths", "What capsule-b averages over its n-gram networks"
    )
    mask_padding: bool = option(
        True,
        "Padding never votes; off: every text is padded to max_tokens, as released",
    )
    initialiser: Literal["xavier", "tensorflow"] = option(
        "xavier", "Xavier-uniform, with fans counted for each map or as TensorFlow does"
    )
    dropout: float = option(
        0.0, "Share of word-vector entries dropped", low=0.0, below=1.0
    )


@dataclass(frozen=True, kw_only=True)
class LossConfig(Checked):
    """What training minimises."""

    loss: Literal["margin", "spread", "cross-entropy"] = option(
        "margin", "Kind of loss"
    )
    m_plus: float = option(0.9, "Margin loss: length asked of a true class", low=0.0)
    m_minus: float = option(0.1, "Margin loss: length allowed to others", low=0.0)
    down_weight: float = option(
        0.5, "Margin loss: lambda, weight of the others", low=0.0
    )
    spread_start: float = option(0.2, "Spread loss: margin in the first epoch", low=0.0)
    spread_end: float = option(0.9, "Spread loss: margin in the end", low=0.0)
    spread_epochs: int = option(10, "Spread loss: epochs from start to end", low=1)
    orphan_in_loss: bool = option(False, "The orphan counts as a class never present")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """The training loop, and what is chosen on the development set."""

    task: Literal["auto", "single-label", "multi-label"] = option(
        "auto", "One label a text, or all it deserves; auto follows the data"
    )
    epochs: int = option(20, "Passes over the training texts, at most", low=1)
    batch_size: int = option(25, "Texts in a batch", low=1)
    learning_rate: float = option(1e-3, "Adam's step", low=0.0)
    rate_decay: float = option(1.0, "Factor on the learning rate, an epoch", low=0.0)
    clip_norm: float = option(0.0, "Longest gradient allowed (0: any)", low=0.0)
    patience: int = option(
        0, "Epochs without a better dev score to stop (0: never)", low=0
    )
    select: Literal["auto", "accuracy", "joined", "last"] = option(
        "auto",
        "Which epoch is kept: best dev accuracy, best exact match on joined dev texts "
        "(auto for multi-label), or the last",
    )
    joined: float = option(
        0.0,
        "Training texts made by joining two, per single one, drawn each epoch",
        low=0.0,
    )
    threshold_for: Literal["exact-match", "micro-f1"] = option(
        "exact-match", "What the calibrated threshold makes best on joined dev texts"
    )
    checkpoint_seconds: float = option(
        10.0, "Least time between checkpoints (0: one after every epoch)", low=0.0
    )
    seed: int = option(0, "Seed of weights, order, dropout and joined texts", low=0)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All options of one run."""

    preset: str = "best"
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
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
        """Return the run as TOML, options left at None left out."""
        try:
            import tomli_w
        except ImportError as error:
            raise ConfigError(
                "tomli-w must be installed to write TOML; got no such package. "
                "Run `pip install 'textcapsules[toml]'`."
            ) from error
        sections = self.to_dict()
        name = sections.pop("preset")
        kept = {
            section: {key: value for key, value in values.items() if value is not None}
            for section, values in sections.items()
        }
        return tomli_w.dumps({"preset": name, **kept})


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "text": TextConfig,
    "model": ModelConfig,
    "loss": LossConfig,
    "train": TrainConfig,
}

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
    "best": {},
}


def preset(name: str) -> RunConfig:
    """Return the run a preset stands for.

    >>> preset("released").model.capsule_types
    16
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}.")
    return RunConfig(preset=name).replace(**PRESETS[name])


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """Build a run from nested plain values, on top of the preset they name."""
    sections = dict(values)
    run = preset(sections.pop("preset", "best"))
    return run.replace(**sections)


def read_config(path: Path | str) -> RunConfig:
    """Read a run from a TOML or JSON file."""
    path = Path(path)
    try:
        content = path.read_text(encoding="utf-8")
        values = (
            json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} must be a readable TOML or JSON file; got {error}."
        ) from error
    if not isinstance(values, dict) or not all(
        isinstance(value, dict) or key == "preset" for key, value in values.items()
    ):
        raise ConfigError(
            f"{path} must hold a preset's name and sections {', '.join(SECTIONS)}; "
            "got something else. Start from `textcapsules train --print-config`."
        )
    return from_dict(values)
