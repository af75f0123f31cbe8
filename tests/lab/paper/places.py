"""Places that do not let a run end well, importable by a process of its own."""

import os
from dataclasses import dataclass

from textcapsules.config import RunConfig
from textcapsules.lab.paper.place import Place


@dataclass(frozen=True)
class DeadlyPlace(Place):
    """Kills the process of every run whose fold is odd."""

    def localise(self, config: RunConfig) -> RunConfig:
        if config.data.fold % 2:
            os._exit(7)
        return super().localise(config)
