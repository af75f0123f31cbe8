"""The options of the command line, each declared once.

First those that several verbs share. Then the flags of the configuration: every field
becomes a flag with the field's help. A flag that is not given is None and changes
nothing, so that the preset and the file of options decide.
"""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.config import (
    AUTO,
    DEFAULT_PRESET,
    ENCODER_PRESET,
    ENCODER_PRESETS,
    PRESETS,
    SECTIONS,
    RunConfig,
    default_preset,
    leaves_encoder_open,
    preset,
    read_config,
    read_values,
)

__all__ = ["config_flags", "resolve_config", "resolve_run"]


class Flag(NamedTuple):
    """A field of the configuration that has a flag."""

    section: str
    field: dataclasses.Field
    type: Any

    def help(self, defaults: RunConfig | None) -> str:
        """Return the help: what the option does, its choices, and its default."""
        facts = []
        if typing.get_origin(self.type) is Literal:
            choices = map(str, typing.get_args(self.type))
            facts.append(f"choices: {', '.join(choices)}")
        if defaults is not None:
            value = getattr(getattr(defaults, self.section), self.field.name)
            facts.append(f"default: {format_value(value)}")
        text = self.field.metadata["help"] + "."
        return f"{text} [dim]\\[{'; '.join(facts)}][/]" if facts else text


def format_value(value: Any) -> str:
    """Return a value as it would be typed.

    >>> format_value((3, 4)), format_value(True), format_value(None)
    ('3,4', 'on', 'none')
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def all_flags() -> dict[str, Flag]:
    """Return the flags of the configuration by the names of their parameters."""
    flags = {}
    for section, config in SECTIONS.items():
        hints = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            # Every verb calls its file of texts `--data`.
            name = "data" if field.name == "source" else field.name
            flags[name] = Flag(section, field, hints[field.name])
    return flags


FLAGS = all_flags()

Model = Annotated[Path, typer.Argument(help="Folder of a trained model.")]
Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts in quotes, or - to read one text per line from stdin."),
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of --data that holds the texts; by default the one that the "
        "model was trained with.",
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of --data that holds the labels; by default the one that the "
        "model was trained with.",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Character between several labels in one cell; by default the one that "
        "the model was trained with, or else a semicolon.",
    ),
]
Delimiter = Annotated[str | None, typer.Option(help=FLAGS["delimiter"].help(None))]
Encoding = Annotated[str | None, typer.Option(help=FLAGS["encoding"].help(None))]
DataDir = Annotated[str | None, typer.Option(help=FLAGS["data_dir"].help(None))]
Split = Annotated[
    str, typer.Option(help="Which texts of a corpus to take: train, dev or test.")
]
MultiLabel = Annotated[
    bool | None,
    typer.Option(
        "--multi-label/--single-label",
        help="Give all labels that reach their thresholds, or only the one with the "
        "highest score; by default what the model was trained for.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Minimum score of a label, from 0 to 1, the same for all labels; by "
        "default the calibrated thresholds of the model."
    ),
]
Refuse = Annotated[
    bool,
    typer.Option(
        "--refuse/--no-refuse",
        help="Give no label to texts outside the training topics.",
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace --out if it exists.")
]
Device = Annotated[str, typer.Option(help=FLAGS["device"].help(None))]
Json = Annotated[
    bool, typer.Option("--json", help="End the output with one JSON object.")
]


def show_defaults(context: typer.Context, name: str | None) -> str | None:
    """Let a help that is asked for after --preset show the defaults of that preset."""
    if name is not None:
        defaults = preset(name)
        for parameter in context.command.params:
            if parameter.name in FLAGS:
                parameter.help = FLAGS[parameter.name].help(defaults)  # type: ignore[attr-defined]
    return name


def show_all_options(context: typer.Context, is_asked: bool) -> None:
    """Print the help with the options that the short help leaves out, and stop."""
    if is_asked:
        for parameter in context.command.params:
            if parameter.name in FLAGS:
                parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


Preset = Annotated[
    str | None,
    typer.Option(
        help=f"Set of defaults to start from: {', '.join(PRESETS)}. "
        f"[dim]\\[default: {DEFAULT_PRESET}, or {ENCODER_PRESET} on an encoder][/]",
        callback=show_defaults,
        is_eager=True,
    ),
]
HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show all options, also those that are seldom needed, and exit.",
        callback=show_all_options,
        is_eager=True,
    ),
]


def config_flags(
    *sections: str,
    short_help: bool = False,
    from_model: bool = False,
    may_choose: bool = False,
) -> Callable[[Callable], Callable]:
    """Give a command a flag for every field of some sections.

    The command receives the values as one argument, `flags`, by section and field.

    Args:
        sections: names of sections of the configuration.
        short_help: show only the common options in --help.
        from_model: the defaults are those that a model was trained with.
        may_choose: the texts decide about an encoder if nothing given does.
    """
    names = [name for name, flag in FLAGS.items() if flag.section in sections]
    defaults = None if from_model else preset(DEFAULT_PRESET)
    if defaults is not None and may_choose:
        defaults = defaults.replace(text={"encoder": AUTO})

    def decorate(command: Callable) -> Callable:
        signature = inspect.signature(command)
        parameters = [p for p in signature.parameters.values() if p.name != "flags"]
        for name in names:
            is_hidden = short_help and not FLAGS[name].field.metadata["common"]
            parameters.append(flag_parameter(name, defaults, is_hidden))

        @functools.wraps(command)
        def wrapper(**values: Any) -> Any:
            flags: dict[str, dict[str, Any]] = {}
            for name in names:
                value, flag = values.pop(name), FLAGS[name]
                if value is not None:
                    flags.setdefault(flag.section, {})[flag.field.name] = parse(
                        flag, value
                    )
            return command(**values, flags=flags)

        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def flag_parameter(
    name: str, defaults: RunConfig | None, is_hidden: bool
) -> inspect.Parameter:
    """Return the keyword parameter that typer makes a flag of."""
    flag, words = FLAGS[name], name.replace("_", "-")
    kind = flag.type
    if isinstance(kind, types.UnionType):  # `X | None`: None is a flag not given
        kind = typing.get_args(kind)[0]
    panel = f"{flag.section.capitalize()} options"
    option = typer.Option(
        f"--{words}/--no-{words}" if kind is bool else f"--{words}",
        help=flag.help(defaults),
        rich_help_panel=panel if defaults else f"{panel}, by default the model's own",
        show_default=False,
        hidden=is_hidden,
    )
    # Typer reads lists and choices as text; the configuration checks them.
    parsed = kind if kind in (bool, int, float) else str
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[parsed | None, option],
    )


def parse(flag: Flag, value: Any) -> Any:
    """Turn `3,4,5` into numbers where the field is a list, or `9` a numeric choice."""
    if typing.get_origin(flag.type) is Literal:
        choices = {str(choice): choice for choice in typing.get_args(flag.type)}
        return choices.get(value, value)
    if typing.get_origin(flag.type) is not tuple:
        return value
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError as error:
        raise ConfigError(
            f"{flag.field.name} must be whole numbers with commas, as 3,4,5; got "
            f"{value!r}."
        ) from error


def resolve_config(
    preset_name: str | None, file: Path | None, flags: dict[str, dict[str, Any]]
) -> RunConfig:
    """Return the run: preset, then file, then flags; the later wins."""
    text = flags.get("text", {})
    if text.get("encoder") == "none":
        flags = {**flags, "text": {**text, "encoder": None}}
    encoder = flags.get("text", {}).get("encoder")
    if file is not None:
        check_one_preset(preset_name)
        return read_config(file, encoder=encoder).replace(**flags)
    return preset(preset_name or default_preset(encoder)).replace(**flags)


def check_one_preset(name: str | None) -> None:
    """Refuse --preset beside --config."""
    if name is not None:
        raise ConfigError(
            "preset must stand in the file when one is given; got --preset too. "
            "Leave out one of --preset and --config."
        )


def resolve_run(
    preset_name: str | None, file: Path | None, flags: dict[str, dict[str, Any]]
) -> tuple[RunConfig, RunConfig | None]:
    """Return the run, and the same one on an encoder if the texts decide about it.

    They do if nothing that is given does. Both runs have every option that is given.
    """
    given: dict[str, Any] = {}
    if file is not None:
        check_one_preset(preset_name)
        given = read_values(file)
    name = preset_name or given.pop("preset", None)
    for section, values in flags.items():
        given[section] = {**given.get(section, {}), **values}
    text = given.get("text", {})
    needs_one = name in ENCODER_PRESETS and "encoder" not in text
    nobody_says = name is None and leaves_encoder_open(given)
    if not (needs_one or nobody_says or text.get("encoder") == AUTO):
        return resolve_config(preset_name, file, flags), None
    given["text"] = {**text, "encoder": AUTO}
    bases = (name or DEFAULT_PRESET, name or ENCODER_PRESET)
    on_words, on_encoder = (preset(base).replace(**given) for base in bases)
    return on_words, on_encoder
