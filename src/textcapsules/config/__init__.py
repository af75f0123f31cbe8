"""Every option of a run: one frozen dataclass a concern, all of them in `RunConfig`.

A field is declared once, with its default and its help text; the TOML key, the JSON key
and the command-line flag follow from it. The defaults are what the paper says; where it
is silent, the field's help says what was chosen. Resolution order, later wins:
defaults, preset, TOML or JSON file, command-line flags.
"""

from textcapsules.config.run import (
    DEFAULT_PRESET,
    FORMER,
    PRESETS,
    RunConfig,
    from_dict,
    preset,
    read_config,
    restore,
)
from textcapsules.config.sections import (
    CAPSULES,
    CHARACTERS,
    CLASSIC,
    SECTIONS,
    DataConfig,
    LossConfig,
    ModelConfig,
    RivalConfig,
    TextConfig,
    TrainConfig,
)

__all__ = [
    "CAPSULES",
    "CHARACTERS",
    "CLASSIC",
    "DEFAULT_PRESET",
    "FORMER",
    "PRESETS",
    "SECTIONS",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
    "RivalConfig",
    "RunConfig",
    "TextConfig",
    "TrainConfig",
    "from_dict",
    "preset",
    "read_config",
    "restore",
]
