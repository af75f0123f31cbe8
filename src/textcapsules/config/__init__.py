"""Every option of a run: one frozen dataclass per section, all of them in `RunConfig`.

A field is declared once, with its default and its help text; the TOML key, the JSON key
and the command-line flag follow from it. The fields' defaults are the paper's, which
is preset `paper`; where the paper says nothing, they are our choice. Later values win:
defaults, preset, TOML or JSON file, command-line flags. A run that names no preset is
on `best`, or on `encoder-frozen` if it names an encoder (`default_preset`).
"""

from textcapsules.config.run import (
    AUTO,
    DEFAULT_PRESET,
    ENCODER_PRESET,
    ENCODER_PRESETS,
    FORMER,
    FORMER_SECTIONS,
    PRESETS,
    RunConfig,
    current_sections,
    default_preset,
    from_dict,
    leaves_encoder_open,
    preset,
    read_config,
    read_values,
    rebase,
    restore,
)
from textcapsules.config.sections import (
    CAPSULES,
    CHARACTERS,
    CLASSIC,
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
    "CAPSULES",
    "CHARACTERS",
    "CLASSIC",
    "DEFAULT_PRESET",
    "ENCODER_PRESET",
    "ENCODER_PRESETS",
    "FORMER",
    "FORMER_SECTIONS",
    "PRESETS",
    "SECTIONS",
    "BaselineConfig",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
    "RunConfig",
    "TextConfig",
    "TrainConfig",
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
