"""Command-line flags made from the options' own declarations.

Every field of the configuration becomes a flag with the field's help; a flag that is
not given is None and changes nothing, so that preset and file keep their say.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.config import SECTIONS, RunConfig, preset, read_config

__all__ = ["Delimiter", "Encoding", "config_flags", "resolve_config"]

PANELS = {
    "data": "Data",
    "text": "Text",
    "model": "Model, with the paper's symbols",
    "baseline": "Systems compared with",
    "loss": "Loss",
    "train": "Training",
}

# `--data` reads better than `--source`, and is what the paper's readers expect.
RENAMED = {"source": "data"}


def help_of(section: str, name: str) -> str:
    """Return the help of an option, for a verb that has it as a flag of its own."""
    (spec,) = (spec for spec in fields(SECTIONS[section]) if spec.name == name)
    return spec.metadata["help"] + "."


Delimiter = Annotated[
    str | None, typer.Option(help=help_of("data", "delimiter"), show_default=False)
]
Encoding = Annotated[
    str | None, typer.Option(help=help_of("data", "encoding"), show_default=False)
]


def config_flags(*sections: str) -> Callable[[Callable], Callable]:
    """Give a command a flag for every field of some sections.

    The command receives them as one argument, `flags`: values by section and field.
    """

    def decorate(command: Callable) -> Callable:
        own = inspect.signature(command)
        added = [p for section in sections for p in section_parameters(section)]
        kept = [p for p in own.parameters.values() if p.name != "flags"]
        places = {
            p.name: section for section in sections for p in section_parameters(section)
        }

        @functools.wraps(command)
        def wrapper(**given: Any) -> Any:
            flags: dict[str, dict[str, Any]] = {}
            for name, section in places.items():
                value = given.pop(name)
                if value is not None:
                    field_name = {v: k for k, v in RENAMED.items()}.get(name, name)
                    flags.setdefault(section, {})[field_name] = parse(
                        section, field_name, value
                    )
            return command(**given, flags=flags)

        wrapper.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in [*kept, *added]}
        return wrapper

    return decorate


def section_parameters(section: str) -> list[inspect.Parameter]:
    """Return one keyword parameter a field."""
    hints = typing.get_type_hints(SECTIONS[section])
    parameters = []
    for spec in fields(SECTIONS[section]):
        name = RENAMED.get(spec.name, spec.name)
        flag = "--" + name.replace("_", "-")
        hint = hints[spec.name]
        if hint is bool:
            flag = f"{flag}/--no-{name.replace('_', '-')}"
        default = f"[dim]\\[{shown(spec.default)}][/]"
        option = typer.Option(
            flag,
            help=f"{spec.metadata['help']}{choices(hint)} {default}",
            rich_help_panel=PANELS[section],
            show_default=False,
        )
        kind = Annotated[plain(hint) | None, option]
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
            )
        )
    return parameters


def plain(hint: Any) -> type:
    """Return the type typer parses; lists and choices are checked by the option."""
    if isinstance(hint, types.UnionType):  # None is what a flag left out means
        hint = typing.get_args(hint)[0]
    return hint if hint in (bool, int, float) else str


def choices(hint: Any) -> str:
    """Return the choices of a field, for its help."""
    if typing.get_origin(hint) is Literal:
        return f" ({', '.join(map(str, typing.get_args(hint)))})"
    return ""


def shown(default: Any) -> str:
    """Return a default as it would be typed."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if isinstance(default, bool):
        return "on" if default else "off"
    return "none" if default is None else str(default)


def parse(section: str, name: str, value: Any) -> Any:
    """Turn `3,4,5` into numbers where the field is a list, or `9` a numeric choice."""
    hint = typing.get_type_hints(SECTIONS[section])[name]
    if typing.get_origin(hint) is Literal:
        return {str(choice): choice for choice in typing.get_args(hint)}.get(
            value, value
        )
    if typing.get_origin(hint) is not tuple:
        return value
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError as error:
        raise ConfigError(
            f"{name} must be whole numbers with commas, as 3,4,5; got {value!r}."
        ) from error


def resolve_config(
    preset_name: str | None, file: Path | None, flags: dict[str, dict[str, Any]]
) -> RunConfig:
    """Return the run: preset, then file, then flags; the later wins."""
    if file is not None:
        if preset_name is not None:
            raise ConfigError(
                "preset must stand in the file when one is given; got --preset too. "
                "Leave out one of --preset and --config."
            )
        return read_config(file).replace(**flags)
    return preset(preset_name or "best").replace(**flags)
