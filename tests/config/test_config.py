"""Options: defaults, presets, faults in words, and files in and out."""

import json
import math
import typing
from dataclasses import MISSING, FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.config import (
    DEFAULT_PRESET,
    PRESETS,
    SECTIONS,
    DataConfig,
    LossConfig,
    ModelConfig,
    RunConfig,
    TextConfig,
    TrainConfig,
    from_dict,
    preset,
    read_config,
    restore,
)


def parts_of(hint: Any) -> list[Any]:
    """Return the kinds that a field's type allows, of a list's items too."""
    return [
        hint,
        *(part for inner in typing.get_args(hint) for part in parts_of(inner)),
    ]


# NOTES.md, "Where the text and the released code differ", line by line.
TABLE: list[tuple[str, str, Any, Any]] = [  # section, option, `paper`, `released`
    ("model", "filters", 32, 32),
    ("model", "stride", 1, 2),
    ("model", "capsule_types", 32, 16),
    ("model", "capsule_size", 16, 16),
    ("model", "conv_window", 3, 3),
    ("model", "conv_types", 16, 16),
    ("model", "shared", True, True),
    ("model", "transform_bias", True, False),
    ("model", "squash", "norm", "released"),
    ("model", "leaky", True, False),
    ("model", "amendment", True, False),
    ("model", "iterations", 3, 3),
    ("model", "architecture", "capsule-b", "capsule-b"),
    ("model", "ngram_sizes", (3, 4, 5), (3, 4, 5)),
    ("model", "average", "lengths", "poses"),
    ("model", "orphan", True, True),
    ("loss", "orphan_in_loss", False, True),
    ("loss", "loss", "auto", "auto"),  # margin, for capsules
    ("loss", "m_plus", 0.9, 0.9),
    ("loss", "m_minus", 0.1, 0.1),
    ("loss", "down_weight", 0.5, 0.25),  # the paper gives none: Sabour's
    ("loss", "spread_start", 0.2, 0.2),
    ("loss", "spread_end", 0.9, 0.2),  # the released margin is fixed
    ("train", "learning_rate", 1e-3, 1e-3),
    ("train", "rate_decay", 1.0, 1.0),  # the released decay is for the CNNs only
    ("train", "batch_size", 25, 25),
    ("train", "epochs", 20, 20),
    ("train", "select", "auto", "last"),  # the released code selects nothing
    ("model", "embeddings", "non-static", "static"),
    ("model", "embedding_size", 300, 300),
    ("model", "initialiser", "xavier", "tensorflow"),
    ("model", "mask_padding", True, False),
    ("text", "max_tokens", 200, 200),
]


@pytest.mark.parametrize(("section", "option", "paper", "released"), TABLE)
def test_presets_equal_the_table_of_the_notes(
    section: str, option: str, paper: Any, released: Any
) -> None:
    assert getattr(getattr(preset("paper"), section), option) == paper
    assert getattr(getattr(preset("released"), section), option) == released


def test_released_changes_nothing_that_the_table_does_not_say() -> None:
    changed = {
        (section, option)
        for section, values in PRESETS["released"].items()
        for option in values
    }
    assert changed == {
        (section, option)
        for section, option, paper, released in TABLE
        if paper != released
    }


def test_defaults_are_the_paper_in_name_and_values() -> None:
    assert RunConfig() == preset("paper")
    assert RunConfig().preset == "paper"


def test_a_run_that_names_no_preset_stands_on_the_default_one() -> None:
    assert from_dict({}) == preset(DEFAULT_PRESET)
    assert preset(DEFAULT_PRESET).model != RunConfig().model


def test_common_options_are_few_and_the_ones_people_ask_for() -> None:
    common = {
        section: [spec.name for spec in fields(kind) if spec.metadata["common"]]
        for section, kind in SECTIONS.items()
    }
    assert {section: names for section, names in common.items() if names} == {
        "data": [
            "source",
            "text_column",
            "label_column",
            "separator",
            "dev",
            "test",
            "add",
        ],
        "text": ["max_tokens", "vectors", "encoder"],
        "model": ["architecture"],
        "train": [
            "task",
            "epochs",
            "batch_size",
            "learning_rate",
            "encoder_training",
            "patience",
            "thresholds",
            "seed",
            "device",
        ],
    }


def test_sabour_is_a_preset_of_the_options() -> None:
    model = preset("sabour").model
    assert (model.squash, model.leaky, model.amendment) == ("sabour", False, False)
    assert (model.orphan, model.iterations) == (False, 3)
    assert preset("sabour").loss.down_weight == 0.5


@pytest.mark.parametrize("name", PRESETS)
def test_preset_remembers_its_name(name: str) -> None:
    assert preset(name).preset == name


BAD: list[tuple[type, str, Any, str]] = [  # each kind of field, each way to be wrong
    (ModelConfig, "iterations", 0, "a whole number of at least 1"),
    (ModelConfig, "iterations", 2.5, "a whole number of at least 1"),
    (ModelConfig, "iterations", "3", "a whole number of at least 1"),
    (ModelConfig, "iterations", True, "a whole number of at least 1"),
    (ModelConfig, "iterations", None, "a whole number of at least 1"),
    (ModelConfig, "leaky", 1, "true or false"),
    (ModelConfig, "leaky", "yes", "true or false"),
    (ModelConfig, "squash", "relu", "one of 'norm', 'sabour', 'released', 'exp', "),
    (ModelConfig, "squash", None, "one of 'norm', 'sabour', 'released', 'exp', "),
    (ModelConfig, "ngram_sizes", (), "a list, each a whole number of at least 1"),
    (ModelConfig, "ngram_sizes", (3, 0), "a list, each a whole number of at least 1"),
    (ModelConfig, "ngram_sizes", (3, "4"), "a list, each a whole number of at least 1"),
    (ModelConfig, "ngram_sizes", 3, "a list, each a whole number of at least 1"),
    (ModelConfig, "dropout", 1.0, "a finite number of at least 0.0 and below 1.0"),
    (ModelConfig, "dropout", -0.1, "a finite number of at least 0.0 and below 1.0"),
    (DataConfig, "dev_fraction", 0.0, "a finite number above 0.0 and below 1.0"),
    (DataConfig, "dev_fraction", 1, "a finite number above 0.0 and below 1.0"),
    (DataConfig, "fold", 10, "a whole number of at least 0 and at most 9"),
    (DataConfig, "source", 3, "a text"),
    (DataConfig, "source", None, "a text"),
    (DataConfig, "separator", 3, "a text"),
    (TrainConfig, "learning_rate", math.nan, "a finite number above 0.0"),
    (TrainConfig, "learning_rate", math.inf, "a finite number above 0.0"),
    (TrainConfig, "learning_rate", 10**400, "a finite number above 0.0"),
    (TrainConfig, "learning_rate", True, "a finite number above 0.0"),
    (TrainConfig, "learning_rate", "fast", "a finite number above 0.0"),
    (TrainConfig, "learning_rate", 0, "a finite number above 0.0"),
    (
        TrainConfig,
        "seed",
        10**30,
        "a whole number of at least 0 and at most 4294967295",
    ),
    (TrainConfig, "epochs", 10**12, "a whole number of at least 1 and at most 1000000"),
    (TrainConfig, "patience", 2**31, "a whole number of at least 0 and at most 2147"),
    (LossConfig, "m_plus", -1, "a finite number of at least 0.0"),
    (TextConfig, "max_tokens", 0, "a whole number of at least 1"),
]


@pytest.mark.parametrize(
    ("section", "name", "value", "expected"),
    BAD,
    ids=[f"{name}={value!r:.12}" for _, name, value, _ in BAD],
)
def test_bad_value_is_told_by_name_expectation_and_value(
    section: type, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        section(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name} must be {expected}")
    assert message.endswith(f"; got {value!r}.")


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_every_option_refuses_a_value_of_a_foreign_kind(section: type) -> None:
    for spec in fields(section):
        with pytest.raises(ConfigError, match=f"^{spec.name} must be .*; got "):
            section(**{spec.name: {"no": "option takes this"}})


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_every_option_has_a_default_and_a_help_text(section: type) -> None:
    for spec in fields(section):
        assert spec.default is not MISSING, spec.name
        assert len(spec.metadata["help"]) > 15, spec.name
        assert not spec.metadata["help"].endswith((".", " ")), spec.name


NUMBERS = [
    (section, spec.name)
    for section, kind in SECTIONS.items()
    for spec in fields(kind)
    if {int, float} & set(parts_of(typing.get_type_hints(kind)[spec.name]))
]
EXTREMES = [0, -1, 2**31, 2**32, 10**12, 10**30, 10**5000]
EXTREMES += [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.5]


@pytest.mark.parametrize(("section", "name"), NUMBERS, ids=str)
def test_extreme_number_is_taken_as_it_is_or_refused_in_one_line(
    section: str, name: str
) -> None:
    """What is taken survives a file, and fits the libraries that read it."""
    is_list = isinstance(getattr(getattr(RunConfig(), section), name), tuple)
    taken = 0
    for value in EXTREMES:
        given = (value,) if is_list else value
        try:
            run = RunConfig().replace(**{section: {name: given}})
        except ConfigError as error:
            assert str(error).startswith(f"{name} must be ")
            assert "\n" not in str(error)
            continue
        taken += 1
        kept = getattr(getattr(run, section), name)
        assert kept == (float(value) if isinstance(kept, float) else given)
        assert from_dict(json.loads(json.dumps(run.to_dict()))) == run
        if isinstance(value, int):
            assert 0 <= value < 2**32 or isinstance(kept, float)
        assert math.isfinite(value)
    assert taken < len(EXTREMES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.json", "[" * 100_000),
        ("deep.json", '{"model": {"filters": ' + "[" * 100_000 + "]" * 100_000 + "}}"),
        ("deep.json", '{"a": ' * 100_000 + "1" + "}" * 100_000),
        ("deep.toml", "a = " + "[" * 100_000 + "]" * 100_000),
        ("deep.toml", "[" + ".".join("a" * 5_000) + "]"),
        ("deep.toml", "a = " + "{a = " * 100_000 + "1" + "}" * 100_000),
        ("long.json", '{"train": {"seed": ' + "9" * 5000 + "}}"),
        ("long.toml", "[train]\nseed = " + "9" * 5000),
    ],
    ids=["lists", "option", "objects", "toml-lists", "dots", "tables", "json", "toml"],
)
def test_file_too_deep_or_too_long_is_one_line(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        DataConfig(dev_fraction=1.5, fold=-1, source=7)  # type: ignore[arg-type]
    message = str(caught.value)
    for part in (
        "dev_fraction must be a finite number above 0.0 and below 1.0; got 1.5",
        "fold must be a whole number of at least 0 and at most 9; got -1",
        "source must be a text; got 7",
    ):
        assert part in message


def test_bounds_themselves_are_allowed() -> None:
    assert DataConfig(fold=9).fold == 9
    assert DataConfig(fold=0).fold == 0
    assert ModelConfig(dropout=0.0).dropout == 0
    assert TrainConfig(patience=0).patience == 0


def test_whole_number_is_a_number_and_a_list_a_tuple() -> None:
    rate = TrainConfig(learning_rate=1).learning_rate
    assert (rate, type(rate)) == (1.0, float)
    sizes = ModelConfig(ngram_sizes=[2, 3]).ngram_sizes  # type: ignore[arg-type]
    assert sizes == (2, 3)


def test_config_error_can_be_caught_as_ours_and_as_a_value_error() -> None:
    assert issubclass(ConfigError, TextCapsulesError)
    assert issubclass(ConfigError, ValueError)


def test_options_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        ModelConfig().iterations = 5  # type: ignore[misc]


def test_replace_changes_a_copy() -> None:
    before = RunConfig()
    after = before.replace(model={"iterations": 5}, train={"seed": 3})
    assert (after.model.iterations, after.train.seed) == (5, 3)
    assert (before.model.iterations, before.train.seed) == (3, 0)
    assert after.data is before.data


def everything_changed() -> RunConfig:
    return preset("released").replace(
        data={"source": "tex\"t's\n.csv", "separator": "|", "fold": 3},
        text={"vectors": "ä/💾.bin", "max_tokens": 77},
        model={"ngram_sizes": (2, 7), "dropout": 0.25},
        loss={"loss": "spread", "m_plus": 0.95},
        train={"learning_rate": 3e-4, "clip_norm": 1, "seed": 12},
    )


@pytest.mark.parametrize(
    "run", [RunConfig(), everything_changed()], ids=["plain", "all"]
)
def test_toml_and_json_read_back_as_written(tmp_path: Path, run: RunConfig) -> None:
    (tmp_path / "run.toml").write_text(run.to_toml(), encoding="utf-8")
    (tmp_path / "run.json").write_text(json.dumps(run.to_dict()), encoding="utf-8")
    assert read_config(tmp_path / "run.toml") == run
    assert read_config(str(tmp_path / "run.json")) == run
    assert from_dict(run.to_dict()) == run


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "run.toml").write_text(preset(name).to_toml(), encoding="utf-8")
    assert read_config(tmp_path / "run.toml") == preset(name)


def test_file_stands_on_the_preset_it_names(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('preset = "released"\n[model]\nstride = 3\n')
    run = read_config(file)
    assert (run.model.stride, run.model.capsule_types) == (3, 16)
    file.write_text("[model]\nstride = 3\n")
    assert read_config(file) == preset("best").replace(model={"stride": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"preset": "papper"},
            "preset must be one of paper, released, .*; got 'papper'",
        ),
        ({"preset": ["paper"]}, r"preset must be one of .*; got \['paper'\]"),
        ({"preset": {"name": "paper"}}, "preset must be one of .*; got {'name'"),
        ({"modle": {}}, "section must be one of data, text, model, .*; got 'modle'"),
        ({"to_dict": {}}, "section must be one of .*; got 'to_dict'"),
        (
            {"model": {"iteration": 3}},
            r"option must be one of \[model\]'s, .*iterations.*; got 'iteration'",
        ),
        ({"model": {"iterations": 0}}, "iterations must be .*; got 0"),
    ],
    ids=str,
)
def test_unknown_names_are_told_with_the_known_ones(
    tmp_path: Path, values: dict, message: str
) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(values))
    with pytest.raises(ConfigError, match=message):
        read_config(file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"[model\n", "a.toml must be a readable TOML or JSON file; got "),
        ("a.json", b"{", "a.json must be a readable TOML or JSON file; got "),
        ("a.toml", b"x = '\xff'", "a.toml must be a readable TOML or JSON file; got "),
        ("a.json", b"[1, 2]", "a.json must hold a preset's name and sections data, "),
        ("a.toml", b"model = 3", "a.toml must hold a preset's name and sections "),
        ("a.json", b'{"model": [3]}', "a.json must hold a preset's name and sections "),
    ],
)
def test_broken_file_is_told_by_name(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_config(tmp_path / name)


def test_missing_file_and_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml must be .*No such file"):
        read_config(tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match="got a folder in place of a file"):
        read_config(tmp_path)


def test_a_run_from_before_an_option_was_there_is_as_it_was_made() -> None:
    values = RunConfig().to_dict()
    assert restore(values).train.calibrate_on == "single+joined"
    del values["train"]["calibrate_on"], values["train"]["thresholds"]
    before = restore(values).train
    assert (before.calibrate_on, before.thresholds) == ("joined", "one")
    # A file of options asks for a new run.
    assert from_dict(values).train.calibrate_on == "single+joined"


def test_a_run_on_an_encoder_from_before_pieces_had_vectors_has_none() -> None:
    values = preset("encoder-frozen").to_dict()
    del values["model"]["piece_size"]
    values["loss"]["per_branch"] = False
    before = restore(values)
    assert before.preset == "encoder-frozen"
    assert before.model.piece_size == 0
    assert preset("encoder-frozen").model.piece_size == 128


def test_a_section_under_its_former_name_is_read_and_written_under_the_current(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[rival]\nhidden_size = 7\n")
    run = read_config(path)
    assert run.baseline.hidden_size == 7
    assert "[baseline]" in run.to_toml()
    assert "rival" not in run.to_toml()
    path.write_text("[rival]\nhidden_size = 7\n[baseline]\npooling = 'max'\n")
    with pytest.raises(ConfigError, match=r"must be named \[baseline\] alone"):
        read_config(path)
