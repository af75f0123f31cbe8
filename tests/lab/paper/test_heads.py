"""The table of heads on a pretrained encoder: its plan, its runs, its page."""

import gc
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from textcapsules.base.errors import ConfigError
from textcapsules.config import preset
from textcapsules.data.load import load_corpus
from textcapsules.inference.evaluate import evaluate
from textcapsules.lab.paper.campaign import Campaign
from textcapsules.lab.paper.heads import HEADS
from textcapsules.lab.paper.place import QUICK, Place, open_place
from textcapsules.lab.paper.plan import Plan, differences, search_place, select
from textcapsules.lab.paper.regression import fit_regression
from textcapsules.lab.paper.runs import execute
from textcapsules.lab.paper.workers import attempt
from textcapsules.text.encoder import load_encoder
from textcapsules.text.encoder_training import LearningEncoder
from tiny_encoder import write_encoder
from toy import refusal, run_cli

FROZEN = [name for name in HEADS if not name.endswith(("_light", "_tuned", "_words"))]
SEARCHED = [name for name in FROZEN if not name.endswith("_pieces")]
TUNED = [name for name in HEADS if name.endswith("_tuned")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    missing = tmp_path_factory.mktemp("nothing")
    encoder = write_encoder(missing / "tiny")
    with open_place(True, str(missing), None, "cpu", str(encoder)) as made:
        yield made


def test_all_heads_stand_on_the_same_states_with_equal_budgets() -> None:
    cells = Plan(encoders=["tiny"]).cells("encoders")
    # Ten folds of three corpora, five seeds of three and of Reuters' two test sets.
    assert len(cells) == len(HEADS) * (3 * 10 + 5 * 5)
    assert len({cell.key for cell in cells}) == len(HEADS) * (3 * 10 + 4 * 5)
    for repeated in ("mr", "trec", "reuters-full"):
        texts = {
            (config.data, config.text, config.train.batch_size, config.train.epochs)
            for cell in select(cells, [f"*/{repeated}"])
            if cell.repeat == 0 and "_tuned" not in cell.system
            for config in [cell.config]
        }
        assert len(texts) == 1, repeated
    assert {cell.config.text.encoder for cell in cells} == {"tiny"}
    budgets = {name: len(HEADS[name].settings) for name in SEARCHED}
    assert budgets.pop("encoder_lr") == 5
    assert set(budgets.values()) == {2}
    assert Plan().cells("encoders") == []


def test_heads_on_an_encoder_that_learns_differ_in_that_alone() -> None:
    plan = Plan(folds=1, seeds=1, encoders=["tiny"])
    for name in ("encoder_capsules", "encoder_linear"):
        (frozen,) = select(plan.cells("encoders"), [f"{name}/trec"])
        (cell,) = select(plan.cells("encoders"), [f"{name}_light/trec"])
        changed = {"encoder_training": "light"}
        assert cell.config == frozen.config.replace(train=changed)


def test_heads_with_words_differ_in_them_alone_and_have_the_heads_setting() -> None:
    setting = HEADS["encoder_capsules"].settings[1]
    chosen = {("encoder_capsules", search_place("mr", "tiny")): setting}
    plan = Plan(folds=1, seeds=1, chosen=chosen, encoders=["tiny"])
    names = [name for name in HEADS if name.endswith("_words")]
    assert len(names) == 6
    for name in names:
        only = [name.removesuffix("_words"), name]
        alone, added = (select(plan.cells("encoders"), [each]) for each in only)
        assert len(alone) == len(added) > 0
        for one, other in zip(alone, added, strict=True):
            assert one.config.train.word_scores == "none"
            assert other.config == one.config.replace(train={"word_scores": "dev"})
    assert not select(plan.cells("search"), ["encoder_*_words"])


def test_a_head_with_pieces_is_what_the_preset_trains() -> None:
    setting = HEADS["encoder_capsules"].settings[1]
    chosen = {("encoder_capsules", search_place("mr", "tiny")): setting}
    plan = Plan(folds=1, seeds=1, chosen=chosen, encoders=["tiny"])
    given = preset("encoder-frozen")
    for corpus in ("mr", "trec", "reuters-multi"):
        only = ("encoder_capsules", "encoder_capsules_pieces")
        alone, added = (
            select(plan.cells("encoders"), [f"{name}/{corpus}"])[0].config
            for name in only
        )
        assert alone.model.piece_size == 0
        assert not alone.loss.per_branch
        assert added == alone.replace(
            model={"piece_size": given.model.piece_size},
            loss={"per_branch": True},
        )
    assert not select(plan.cells("search"), ["*_pieces", "*_pieces_words"])


def test_all_heads_on_a_tuned_encoder_have_its_options_and_settings() -> None:
    plan = Plan(folds=1, seeds=1, encoders=["tiny"])
    assert len({str(HEADS[name].settings) for name in TUNED}) == 1
    for corpus in ("mr", "trec", "ag-news", "reuters-full"):
        cells = {
            cell.system: cell.config
            for cell in select(plan.cells("encoders"), [f"*_tuned/{corpus}"])
        }
        assert list(cells) == TUNED
        assert len({(run.text, run.train, run.baseline) for run in cells.values()}) == 1
        train = cells["encoder_linear_tuned"].train
        epochs = 1 if corpus == "ag-news" else 3  # of 60,000 texts
        assert (train.encoder_training, train.epochs) == ("tuned", epochs)
        assert (train.batch_size, train.schedule, train.warmup) == (32, "linear", 0.1)
    search = select(plan.cells("search"), ["encoder_capsules_tuned/*"])
    places = [cell.corpus for cell in search]
    assert places == ["mr"] * 5 + ["trec"] * 5 + ["reuters-full"] * 5
    assert all(not cell.tests for cell in search)


def test_a_setting_searched_on_a_corpus_is_for_that_corpus() -> None:
    settings = HEADS["encoder_capsules_tuned"].settings
    chosen = {
        ("encoder_capsules_tuned", search_place(corpus, "tiny")): settings[number]
        for number, corpus in enumerate(("mr", "trec", "reuters-full"), 1)
    }
    plan = Plan(folds=1, seeds=1, chosen=chosen, encoders=["tiny"])
    for corpus, number in (("mr", 1), ("cr", 1), ("trec", 2), ("reuters-multi", 3)):
        only = [f"encoder_capsules_tuned/{corpus}"]
        (cell,) = select(plan.cells("encoders"), only)
        expected = settings[number]["train"]
        assert cell.config.train.encoder_rate == expected["encoder_rate"]
        assert cell.config.train.epochs == expected["epochs"]


@pytest.mark.slow
def test_a_search_chooses_for_one_encoder(place: Place, tmp_path: Path) -> None:
    work = Campaign(
        tmp_path, folds=1, only=["encoder_lr/mr"], encoder="elsewhere/tiny", quick=True
    )
    search = work.unsearched(["encoders"])
    assert [(cell.setting, cell.config.data.source) for cell in search] == [
        (str(number), "mr") for number in range(5)
    ]
    work.run(search, place, jobs=1, on_done=lambda _: None)
    assert work.unsearched(["encoders"]) == []
    file = tmp_path / "results" / "search" / "encoder_lr.mr.tiny.json"
    options = json.loads(file.read_text())["options"]
    (cell,) = work.cells(["encoders"])
    assert cell.config.baseline.tfidf_c == options["baseline"]["tfidf_c"]
    other = Campaign(
        tmp_path, folds=1, only=["encoder_lr/mr"], encoder="other", quick=True
    )
    assert len(other.unsearched(["encoders"])) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        *FROZEN,
        *("encoder_capsules_light", "encoder_capsules_tuned"),
        "encoder_capsules_words",
    ],
)
def test_record_names_the_encoder_and_no_folder(place: Place, head: str) -> None:
    plan = Plan(folds=1, seeds=1, adjust=QUICK, encoders=["tiny"])
    (cell,) = select(plan.cells("encoders"), [f"{head}/reuters-multi"])
    record = execute(cell, place)
    content = json.dumps(record)
    assert place.encoder is not None and place.data_dir is not None
    assert place.encoder not in content and place.data_dir not in content
    assert record["options"]["text.encoder"] == "tiny"
    assert record["config"]["text"]["encoder"] == "tiny"
    assert record["vectors"]["encoder"] == "tiny"
    sums = load_encoder(place.encoder).facts["sha256"]
    assert record["vectors"]["sha256"] == sums
    assert set(record["test"]) == {"reuters-multi", "reuters-full"}
    assert "calibrated" in record["test"]["reuters-full"]


@pytest.mark.parametrize("joined", [0.0, 0.33])
@pytest.mark.parametrize("corpus", ["mr", "trec", "reuters-full"])
def test_regression_is_scikit_learns_on_the_mean_states(
    place: Place, corpus: str, joined: float
) -> None:
    plan = Plan(folds=1, seeds=1, adjust=QUICK, encoders=["tiny"])
    (cell,) = select(plan.cells("encoders"), [f"encoder_lr/{corpus}"])
    config = place.localise(cell.config).replace(
        train={"joined": joined}, baseline={"tfidf_c": 2.0}
    )
    texts = load_corpus(config.data)
    classifier = fit_regression(config, texts)
    assert evaluate(classifier, texts.test).texts == len(texts.test)
    if joined:  # the draw of joined texts is tested where it is made
        assert classifier.record["epochs"][0]["loss"] > 0
        return
    assert place.encoder is not None
    encoder = load_encoder(place.encoder)
    reader = encoder.tokenizer.cut_by(config.text.encode_by)

    def means(examples) -> np.ndarray:
        rows = []
        for ids in reader.encode([each.text for each in examples], 40):
            known = ids[ids > 1].astype(np.int64)  # as the preset reads them
            states = encoder.states.of(torch.from_numpy(known[None]))[0].numpy()
            spread = states.std(1, keepdims=True)
            rows.append(((states - states.mean(1, keepdims=True)) / spread).mean(0))
        return np.array(rows)

    labels = np.array([texts.labels.index(e.labels[0]) for e in texts.train])
    if corpus == "reuters-full":
        expected = np.stack(
            [
                LogisticRegression(C=2.0, max_iter=2000)
                .fit(means(texts.train), labels == place)
                .predict_proba(means(texts.test))[:, 1]
                for place in range(len(texts.labels))
            ],
            1,
        )
    else:
        model = LogisticRegression(C=2.0, max_iter=2000)
        model.fit(means(texts.train), labels)
        expected = model.predict_proba(means(texts.test))
    found = classifier.scores([each.text for each in texts.test])
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_no_network_outlives_its_run(place: Place) -> None:
    plan = Plan(folds=1, seeds=1, adjust=QUICK, encoders=["tiny"])
    (cell,) = select(plan.cells("encoders"), ["encoder_linear_tuned/trec"])
    gc.disable()  # it comes too late for a GPU's memory
    try:
        assert attempt(cell, place).record is not None
        kept = [each for each in gc.get_objects() if type(each) is LearningEncoder]
    finally:
        gc.enable()
    assert not kept


def test_a_regression_and_a_linear_layer_are_different_runs() -> None:
    plan = Plan(folds=1, seeds=1, encoders=["tiny"])
    cells = plan.cells("encoders") + plan.cells("search")
    lr, linear = (
        [cell for cell in cells if cell.system == name]
        for name in ("encoder_lr", "encoder_linear")
    )
    assert not {cell.key for cell in lr} & {cell.key for cell in linear}
    assert "baseline" not in str(differences(linear[0].config))


def test_other_weights_of_the_same_name_are_refused(
    place: Place, tmp_path: Path
) -> None:
    only = ["encoder_lr/trec", "encoder_linear/trec"]
    work = Campaign(
        tmp_path / "out", seeds=1, only=only[:1], encoder="tiny", quick=True
    )
    work.run(work.cells(["encoders"]), place, jobs=1, on_done=lambda _: None)
    other = write_encoder(tmp_path / "tiny", seed=1)
    again = Campaign(tmp_path / "out", seeds=1, only=only, encoder="tiny", quick=True)
    elsewhere = Place(place.data_dir, place.vectors, "cpu", str(other))
    with pytest.raises(ConfigError, match=r"the one of the records .* other weights"):
        again.check(again.cells(["encoders"]), elsewhere)


@pytest.mark.slow
def test_the_command_fills_the_table_from_records_alone(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "tiny")
    place = ["--quick", "--out", tmp_path / "out", "--data-dir", tmp_path / "nothing"]
    only = ["--only", "encoder_l*/trec", "--only", "encoder_capsules/trec"]
    ran = run_cli(
        "reproduce", "encoders", "--encoder", encoder, *only, *place, "--jobs", 1
    )
    assert ran.code == 0, ran.err
    page = (tmp_path / "out" / "TABLES.md").read_text()
    section = page.partition("## Heads on tiny")[2]
    assert "may have read some of these texts" in section
    rows = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[4]
        for line in section.splitlines()
        if line.startswith("| ")
    }
    assert re.fullmatch(r"\d+\.\d \(1\)", rows["Logistic regression on the mean state"])
    assert re.fullmatch(r"\d+\.\d \(1\)", rows["Capsules"])
    assert "Capsules, attention routing" not in rows  # no record
    (tmp_path / "out" / "TABLES.md").unlink()
    alone = ["--tables-only", *place]
    assert run_cli("reproduce", "encoders", *alone).code == 0
    assert (tmp_path / "out" / "TABLES.md").read_text() == page
    # Without records of an encoder there is no such section.
    empty = ["--quick", "--tables-only", "--out", tmp_path / "empty"]
    assert run_cli("reproduce", "encoders", *empty).code == 0
    assert "Heads on" not in (tmp_path / "empty" / "TABLES.md").read_text()


def test_plan_and_mistakes(tmp_path: Path) -> None:
    out = ["--out", tmp_path / "out"]
    plan = ["--only", "encoder_capsules/*", "--plan", "--json", *out]
    ran = run_cli("reproduce", "encoders", "--encoder", "a/tiny", *plan)
    told = json.loads(ran.out.splitlines()[-1])
    # Fifty runs, and two settings on MR and on Reuters.
    assert told["runs_to_do"] == 3 * 10 + 4 * 5 + 2 * 2
    said = refusal("reproduce", "encoders", *out)
    assert "encoder must be given for the table encoders" in said
    said = refusal("reproduce", "table1", "--encoder", "tiny", *out)
    assert "encoder must go with the table encoders; got 'tiny' for table1" in said
    few = ["--quick", "--only", "encoder_lr/trec", *out]
    said = refusal("reproduce", "encoders", "--encoder", tmp_path / "none", *few)
    assert "encoder must be a folder" in said
    assert not (tmp_path / "out").exists()
