"""Counts by hand: 30 systems, ten folds of MR, Subj and CR, five seeds elsewhere."""

from collections import Counter

import pytest

from textcapsules.base.errors import ConfigError
from textcapsules.config import PRESETS, RunConfig
from textcapsules.lab.paper.plan import LADDER, TABLES, Cell, Plan, differences, select
from textcapsules.lab.paper.systems import N_SETTINGS, SYSTEMS, TUNED

pytestmark = pytest.mark.slow

FALLING = list(LADDER)[list(LADDER).index("rate 0.002, rising and falling") :]


def keys(cells: list[Cell]) -> set[str]:
    return {cell.key for cell in cells}


def test_table1_has_ten_folds_or_five_seeds_of_every_system():
    cells = Plan().cells("table1")
    # 3 corpora in folds and 4 with seeds; LR-LSTM has no use for 4 or 6 classes.
    assert len(cells) == 30 * (3 * 10 + 4 * 5) + (3 * 10 + 2 * 5)
    folds = Counter(cell.corpus for cell in cells if cell.system == "capsule_b")
    assert folds == {
        "mr": 10,
        "sst2": 5,
        "subj": 10,
        "trec": 5,
        "cr": 10,
        "ag-news": 5,
        "sst2-phrases": 5,
    }
    mr = [cell.config for cell in select(cells, ["capsule_b/mr"])]
    assert [config.data.fold for config in mr] == list(range(10))
    assert {config.train.seed for config in mr} == {0}
    trec = [cell.config for cell in select(cells, ["capsule_b/trec"])]
    assert [config.train.seed for config in trec] == [0, 1, 2, 3, 4]
    assert {config.data.fold for config in trec} == {0}


def test_table5_trains_once_for_both_test_sets():
    cells = Plan().cells("table5")
    # 10 networks choose in eight ways, 17 capsule networks and 3 classics in seven.
    lines = 10 * 8 + 17 * 7 + 3 * 7
    assert len(cells) == lines * 2 * 5
    lines -= 2 * 7  # unsearched, Capsule-A and -B are those of preset `paper`
    # What tuning has found may be what the paper says; then they share runs.
    pairs = {"capsule_b_tuned": ("capsule_b", 7), "cnn_tuned": ("cnn_non_static", 8)}
    for tuned, (plain, ways) in pairs.items():
        one, other = (
            differences(Plan().config(SYSTEMS[name], "mr", SYSTEMS[name].settings[0]))
            for name in (plain, tuned)
        )
        lines -= ways * (one == other)
    assert len(keys(cells)) == lines * 5
    assert {cell.tests for cell in cells} == {("reuters-multi", "reuters-full")}


def test_small_tables_and_search():
    plan = Plan()
    counts = {table: len(plan.cells(table)) for table in TABLES}
    assert counts["ablation"] == 8 * 10
    assert counts["a4"] == 14 * 10
    assert counts["figure3"] == 3 * 5
    # Twelve steps on ten folds of MR, five of two corpora, five seeds of five.
    assert counts["ladder"] == 12 * (10 + 2 * 5 + 5 * 5)
    # Four settings of 14 systems on MR and, but for LR-LSTM, on Reuters; two more
    # folds of VD-CNN, Capsule-A and Capsule-B.
    assert counts["search"] == 4 * (14 + 13 + 3 * 2)
    # Thirteen settings of two systems on four folds of two corpora and three seeds.
    assert counts["tuning"] == 2 * 13 * (4 + 4 + 3)
    assert len(keys(plan.cells("a4"))) == 13 * 10  # rows 7 and 9 are one


def test_tables_share_runs():
    plan = Plan()
    table1 = keys(select(plan.cells("table1"), ["capsule_b/mr"]))
    ablation = [cell for cell in plan.cells("ablation") if cell.setting == "ours-3"]
    fifth = [cell for cell in plan.cells("a4") if cell.setting == "5"]
    assert table1 == keys(ablation) == keys(fifth)
    uniform = keys(select(plan.cells("table1"), ["capsule_b_uniform/mr"]))
    once = [cell for cell in plan.cells("ablation") if cell.setting == "ours-1"]
    assert uniform == keys(once)


def test_fewer_folds_and_seeds_are_the_first_ones():
    few = Plan(folds=2, seeds=1)
    assert keys(few.cells("table1")) < keys(Plan().cells("table1"))
    assert len(select(few.cells("table1"), ["lstm"])) == 3 * 2 + 4


@pytest.mark.parametrize("table", TABLES)
def test_every_cell_has_options_that_can_be_run(table):
    for cell in Plan(folds=1, seeds=1).cells(table):
        config, name = cell.config, cell.system
        # A rate that falls has its time to fall, whatever dev says.
        falls = name.startswith("capsule_b_best") or cell.setting in FALLING
        assert (config.train.schedule == "linear") == falls, name
        assert config.train.epochs == (None if falls else 20), name
        if falls:
            assert config.train.patience == 0, name
        is_large = cell.corpus in ("ag-news", "sst2-phrases")
        assert config.train.batch_size == (50 if is_large else 25)
        reads_vectors = config.text.vectors is not None
        assert reads_vectors == SYSTEMS[name].vectors
        if config.model.embeddings == "static":
            assert reads_vectors
        if config.train.select == "last":
            assert config.train.patience == 0


def test_a_preset_may_ask_for_another_training(monkeypatch):
    monkeypatch.setitem(PRESETS, "best", {"train": {"batch_size": 64}})
    entry = SYSTEMS["capsule_b_best"]
    assert Plan().config(entry, "ag-news").train.batch_size == 64
    assert Plan().config(SYSTEMS["capsule_b"], "ag-news").train.batch_size == 50


def test_searched_systems_have_equal_budgets():
    for entry in SYSTEMS.values():
        assert len(entry.settings) in (1, N_SETTINGS), entry.name
        distinct = {str(options) for options in entry.settings}
        assert len(distinct) == len(entry.settings)


def test_tuning_is_of_equal_width_and_does_not_look_at_what_was_chosen(monkeypatch):
    sizes = {name: len(settings) for name, settings in TUNED.items()}
    assert set(sizes.values()) == {13}
    cells = Plan().cells("tuning")
    assert len(keys(cells)) == len(cells)
    assert all(cell.tests == () for cell in cells)
    cells = [cell for cell in cells if "as in the tables" not in cell.setting]
    other = {"train": {"learning_rate": 0.5, "vector_rate": 0.5, "start_length": 0.5}}
    monkeypatch.setitem(PRESETS, "best", {**PRESETS["best"], **other})
    assert keys(cells) < keys(Plan().cells("tuning"))


def test_key_ignores_the_machine_and_nothing_else():
    def key(**sections) -> str:
        config = RunConfig().replace(**sections)
        return Cell(
            table="table1",
            system="capsule_b",
            corpus="mr",
            setting="",
            repeat=0,
            config=config,
        ).key

    plain = key()
    assert key(data={"data_dir": "/a"}, train={"device": "cuda"}) == plain
    assert key(train={"checkpoint_seconds": 1.0}) == plain
    for changed in (
        {"data": {"fold": 1}},
        {"train": {"seed": 1}},
        {"model": {"leaky": False}},
        {"text": {"vectors": "vectors"}},
        {"loss": {"loss": "spread"}},
    ):
        assert key(**changed) != plain


def test_runs_made_before_single_texts_calibrated_keep_their_keys():
    # As the version before there was such a choice had them.
    cells = Plan().cells("table5")
    found = {(c.system, c.setting, c.repeat): c.key for c in cells}
    assert found["capsule_b", "joined", 0] == "f686d15a92f655b8"
    assert found["cnn_rand", "trained-joined", 2] == "06e7086f2f0a2543"
    new = {c.key for c in cells if "single+joined" in c.setting}
    old = {c.key for c in cells if "single+joined" not in c.setting}
    assert not new & old


def test_a_line_says_on_which_documents_all_its_systems_are_calibrated():
    expected = {
        "accuracy": ("joined", 1.0, "texts", 0.0, 200),
        "joined": ("joined", 1.0, "texts", 0.0, 200),
        "margin": ("joined", 1.0, "texts", 0.0, 200),
        "trained-joined": ("joined", 1.0, "texts", 1.0, 200),
        "single+joined": ("single+joined", 0.2, "texts", 0.0, 200),
        "trained-joined, single+joined": ("single+joined", 0.2, "texts", 1.0, 200),
        "by label, 400 tokens": ("single+joined", 0.2, "labels", 0.0, 400),
        "trained-joined, by label, 400 tokens": (
            "single+joined",
            0.2,
            "labels",
            1.0,
            400,
        ),
    }
    for cell in Plan(seeds=1).cells("table5"):
        train = cell.config.train
        calibrated = (train.calibrate_on, train.joined_share, train.joined_by)
        found = (*calibrated, train.joined, cell.config.text.max_tokens)
        assert found == expected[cell.setting], (cell.system, cell.setting)


def test_a_search_and_a_table_never_share_a_run():
    plan = Plan()
    searched = keys(plan.cells("search"))
    assert not searched & keys(plan.cells("table1"))
    assert all(cell.tests == () for cell in plan.cells("search"))


def test_chosen_settings_are_used_on_the_corpora_they_were_searched_for():
    chosen = {("capsule_b", "mr"): {"model": {"dropout": 0.5}}}
    plan = Plan(folds=1, seeds=1, chosen=chosen)
    for table in ("table1", "ablation", "a4"):
        cells = select(plan.cells(table), ["capsule_b"])
        assert {cell.config.model.dropout for cell in cells} == {0.5}
    reuters = select(plan.cells("table5"), ["capsule_b"])
    assert {cell.config.model.dropout for cell in reuters} == {0.0}


def test_controls_take_the_setting_that_was_chosen_for_the_network_they_control():
    chosen = {("capsule_b", "mr"): {"model": {"dropout": 0.5, "transform_gain": 4.0}}}
    plan = Plan(folds=1, seeds=1, chosen=chosen)
    routed = select(plan.cells("table1"), ["capsule_b/mr"])[0].config
    controls = {
        "capsule_b_uniform": {"iterations": 1},
        "capsule_b_non_shared": {"shared": False},
    }
    for name, model in controls.items():
        control = select(plan.cells("table1"), [f"{name}/mr"])[0].config
        assert control == routed.replace(model=model)
    plain = select(plan.cells("table1"), ["capsule_b_paper/mr"])[0].config
    assert plain.model == RunConfig().model


def test_the_released_network_pads_to_the_longest_text_but_on_reuters():
    plan = Plan(folds=1, seeds=1)
    for corpus, longest in (("mr", 56), ("trec", 37), ("cr", 105)):
        (cell,) = select(plan.cells("table1"), [f"capsule_b_released/{corpus}"])
        assert cell.config.text.max_tokens == longest
    reuters = select(plan.cells("table5"), ["capsule_b_released"])
    for cell in reuters:
        longest = 400 if "400 tokens" in cell.setting else 200
        assert cell.config.text.max_tokens == longest, cell.setting


def test_the_ladder_leads_from_preset_paper_to_preset_best_a_step_at_a_time():
    plan = Plan()
    steps: dict[str, list[Cell]] = {}
    for cell in plan.cells("ladder"):
        steps.setdefault(cell.setting, []).append(cell)
    assert list(steps) == list(LADDER)
    by_label = [c for c in plan.cells("table5") if c.setting == "by label, 400 tokens"]
    tables = plan.cells("table1") + by_label
    first, *_, last = steps.values()
    assert keys(first) < keys(select(tables, ["capsule_b_paper"]))
    assert keys(last) < keys(select(tables, ["capsule_b_best"]))
    before: dict[str, dict] = {}
    for setting, cells in steps.items():
        changed = {
            f"{section}.{name}"
            for section, options in LADDER[setting].items()
            for name in options
        }
        for cell in cells:
            now, place = differences(cell.config), f"{cell.corpus}/{cell.repeat}"
            then = before.get(place, now)
            differ = {name for name, _ in now.items() ^ then.items()}
            # On Reuters all steps read 400 tokens.
            assert differ <= changed, (setting, place)
            assert differ >= changed - {"text.max_tokens"}, (setting, place)
            before[place] = now


VARIANTS = {
    "one_iteration": {"iterations": 1},
    "no_competition": {"compete": False},
    "not_normalised": {"normalise": "none"},
    "no_peaks": {"peaks": False},
    "attention": {"routing": "attention"},
}


@pytest.mark.parametrize(("variant", "model"), VARIANTS.items())
def test_a_variant_of_preset_best_differs_in_one_thing(variant, model):
    plan = Plan(folds=1, seeds=1)
    for table in ("table1", "table5"):
        whole = "_no_peaks" if variant == "attention" else ""
        best, other = (
            select(plan.cells(table), [f"capsule_b_best{name}"])
            for name in (whole, f"_{variant}")
        )
        assert len(best) == len(other) > 0
        # A network alone has one loss.
        loss = {"per_branch": False} if variant == "no_peaks" else {}
        for one, changed in zip(best, other, strict=True):
            assert (one.corpus, one.setting) == (changed.corpus, changed.setting)
            assert one.config.replace(model=model, loss=loss) == changed.config
            assert changed.config != one.config


@pytest.mark.parametrize("name", ["cnn_tuned", "capsule_b_best"])
def test_a_row_with_words_differs_in_them_alone(name):
    plan = Plan(folds=1, seeds=1)
    for table in ("table1", "table5"):
        alone, added = (
            select(plan.cells(table), [each]) for each in (name, f"{name}_words")
        )
        assert len(alone) == len(added) > 0
        for one, other in zip(alone, added, strict=True):
            assert (one.corpus, one.setting) == (other.corpus, other.setting)
            assert one.config.train.word_scores == "none"
            changed = one.config.replace(train={"word_scores": "dev"})
            assert other.config == changed


@pytest.mark.parametrize("table", TABLES)
def test_words_have_a_say_only_where_the_row_is_named_so(table):
    for cell in Plan(folds=1, seeds=1, encoders=["tiny"]).cells(table):
        expected = "dev" if cell.system.endswith("_words") else "none"
        assert cell.config.train.word_scores == expected, cell.system


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["capsule_b/mr"], {("capsule_b", "mr")}),
        (["*/trec"], {(name, "trec") for name in SYSTEMS if name != "lr_lstm"}),
        (["/trec"], {(name, "trec") for name in SYSTEMS if name != "lr_lstm"}),
        (
            ["cnn_*/mr", "lstm/cr"],
            {
                ("cnn_rand", "mr"),
                ("cnn_static", "mr"),
                ("cnn_non_static", "mr"),
                ("cnn_tuned", "mr"),
                ("cnn_tuned_words", "mr"),
                ("lstm", "cr"),
            },
        ),
    ],
)
def test_only_keeps_what_it_names(only, expected):
    cells = select(Plan(folds=1, seeds=1).cells("table1"), only)
    assert {(cell.system, cell.corpus) for cell in cells} == expected


def test_only_may_name_a_setting():
    cells = Plan(seeds=2).cells("table5")
    kept = select(cells, ["lstm/reuters-full/*joined", "bilstm//margin"])
    assert {(cell.system, cell.corpus, cell.setting) for cell in kept} == {
        *(
            ("lstm", "reuters-full", setting)
            for setting in (
                "joined",
                "trained-joined",
                "single+joined",
                "trained-joined, single+joined",
            )
        ),
        ("bilstm", "reuters-multi", "margin"),
        ("bilstm", "reuters-full", "margin"),
    }


@pytest.mark.parametrize("only", ["capsule_c", "capsule_b/mars", "Capsule_b/mr"])
def test_only_refuses_unknown_names(only):
    with pytest.raises(ConfigError, match=r"only must be SYSTEM/CORPUS/SET.*; got"):
        select(Plan(folds=1).cells("ablation"), [only])


@pytest.mark.parametrize("table", [name for name in TABLES if name != "encoders"])
def test_every_run_keeps_unknown_words(table):
    assert {cell.config.text.unknown for cell in Plan().cells(table)} == {"keep"}
