"""Runs that fail or die take nothing else with them."""

import json
from pathlib import Path

import numpy as np
import pytest

from lab.paper.places import DeadlyPlace
from textcapsules.base.errors import ConfigError, CorpusError, WriteError
from textcapsules.lab.paper.campaign import Campaign, check_tables
from textcapsules.lab.paper.place import Place, open_place

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    missing = str(tmp_path_factory.mktemp("nothing"))
    with open_place(True, missing, None, "cpu") as made:
        yield made


def campaign(folder: Path, *only: str, **options) -> Campaign:
    return Campaign(folder, seeds=1, only=only, quick=True, **options)


def run(work: Campaign, tables: list[str], place: Place, jobs: int = 1):
    outcomes = []
    result = work.run(work.cells(tables), place, jobs=jobs, on_done=outcomes.append)
    return result, outcomes


def test_a_damaged_corpus_fails_its_own_runs_alone(place, tmp_path):
    with open_place(True, str(tmp_path / "none"), None, "cpu") as made:
        assert made.data_dir is not None
        (Path(made.data_dir) / "trec/train.tsv.gz").write_bytes(b"no gzip")
        work = campaign(tmp_path, "tfidf_svm/trec", "tfidf_svm/sst2")
        result, outcomes = run(work, ["table1"], made)
    assert (result.done, len(result.failed), len(outcomes)) == (1, 1, 2)
    failure = json.loads((tmp_path / "failures.jsonl").read_text())
    assert failure["corpus"] == "trec"
    assert "train.tsv.gz must be a whole gzip file" in failure["error"]
    # Mended, only what failed is done again.
    result, outcomes = run(campaign(tmp_path, *work.only), ["table1"], place)
    assert (result.already, result.done) == (1, 1)
    assert [outcome.cell.corpus for outcome in outcomes] == ["trec"]
    assert not (tmp_path / "failures.jsonl").exists()
    result, outcomes = run(campaign(tmp_path, *work.only), ["table1"], place)
    assert (result.already, result.done, outcomes) == (2, 0, [])


def test_a_process_that_dies_takes_one_run_with_it(place, tmp_path):
    deadly = DeadlyPlace(place.data_dir, place.vectors, place.device)
    work = campaign(tmp_path, "tfidf_svm/mr", folds=3)
    result, _ = run(work, ["table1"], deadly, jobs=2)
    assert result.done == 2
    (failure,) = result.failed
    assert failure.cell.repeat == 1
    assert failure.error == "its process ended with exit code 7"
    kept = campaign(tmp_path, "tfidf_svm/mr", folds=3)
    assert [cell.repeat for cell in kept.missing(kept.cells(["table1"]))] == [1]


def test_one_of_each_network_then_the_longest_come_first(tmp_path):
    work = campaign(tmp_path, "capsule_*")
    cells = work.cells(["table1", "ablation", "a4"])
    left = work.missing(cells)
    networks = [(cell.config.data.source, cell.config.model) for cell in left]
    kinds = len(set(networks))
    assert 30 < kinds < len(left)
    assert len(set(networks[:kinds])) == kinds  # one of each compiles for the others
    for part in (left[:kinds], left[kinds:]):
        costs = [cell.cost for cell in part]
        assert costs == sorted(costs, reverse=True)
    assert len({cell.key for cell in left}) == len(left) < len(cells)


def test_tables_wait_for_a_search_once(place, tmp_path):
    work = campaign(tmp_path, "tfidf_svm/mr", folds=1)
    search = work.unsearched(["table1"])
    assert [cell.setting for cell in search] == ["0", "1", "2", "3"]
    work.run(search, place, jobs=1, on_done=lambda _: None)
    assert work.unsearched(["table1"]) == []
    chosen = json.loads(
        (tmp_path / "results" / "search" / "tfidf_svm.mr.json").read_text()
    )
    cell = work.cells(["table1"])[0]
    assert cell.config.baseline.tfidf_c == chosen["options"]["baseline"]["tfidf_c"]


def test_what_could_only_fail_is_refused_before_the_first_run(place, tmp_path):
    work = campaign(tmp_path / "out", "cnn_static/mr")
    missing = Place(place.data_dir, None, "cpu")
    with pytest.raises(ConfigError, match=r"vectors must be .* for cnn_static; got n"):
        run(work, ["table1"], missing)
    nowhere = Place(place.data_dir, str(tmp_path / "v.npz"), "cpu")
    with pytest.raises(ConfigError, match=r"vectors must be .*v\.npz'"):
        run(work, ["table1"], nowhere)
    empty = Place(str(tmp_path), place.vectors, "cpu")
    with pytest.raises(CorpusError, match=r"must hold the corpus mr; .*fetch mr"):
        run(work, ["table1"], empty)
    with pytest.raises(ConfigError, match="device must be auto"):
        run(work, ["table1"], Place(place.data_dir, place.vectors, "tpu"))
    assert not (tmp_path / "out").exists()


def test_a_page_of_somebody_else_is_kept(tmp_path):
    (tmp_path / "TABLES.md").write_text("# My notes\n")
    with pytest.raises(WriteError, match=r"TABLES\.md must be a page of this"):
        campaign(tmp_path)
    assert (tmp_path / "TABLES.md").read_text() == "# My notes\n"


def test_all_is_every_table():
    tables = ["table1", "table5", "ablation", "a4", "figure3", "ladder", "tuning"]
    assert check_tables(["all"]) == (tables, ["table6", "a3"])
    assert check_tables(["a4", "all"])[0][0] == "a4"
    assert check_tables(["a4", "a3", "a4"]) == (["a4"], ["a3"])


def test_displays_are_chosen_like_cells(tmp_path):
    names = ["table6", "a3"]
    assert list(campaign(tmp_path).displays(names)) == names
    assert list(campaign(tmp_path, "capsule_b/reuters-*").displays(names)) == names
    assert campaign(tmp_path, "capsule_b/mr").displays(names) == {}
    assert campaign(tmp_path, "tfidf_svm").displays(names) == {}


def test_runs_at_no_commit_are_done_again_when_asked(place, tmp_path, monkeypatch):
    monkeypatch.setattr("textcapsules.lab.paper.runs.commit", lambda: "0123456789ab+")
    only = ("tfidf_svm/mr", "tfidf_svm/trec")
    run(campaign(tmp_path, *only, folds=1), ["table1"], place)
    monkeypatch.setattr("textcapsules.lab.paper.runs.commit", lambda: "0123456789ab")
    again = campaign(tmp_path, "tfidf_svm/mr", folds=1)
    assert run(again, ["table1"], place)[0].done == 0
    again = campaign(tmp_path, "tfidf_svm/mr", folds=1, redo_unclean=True)
    assert run(again, ["table1"], place)[0].done == 1
    # The other corpus still waits; what was done again does not.
    left = campaign(tmp_path, *only, folds=1, redo_unclean=True)
    missing = left.missing(left.cells(["table1"]))
    assert [cell.corpus for cell in missing] == ["trec"]


def test_true_vectors_are_counted_for_records_without_that_share(place, tmp_path):
    work = Campaign(tmp_path / "tables", seeds=1, folds=1)
    with np.load(place.vectors) as arrays:
        words, vectors = arrays["words"], arrays["vectors"]
    real = np.arange(len(words)) % 2 == 0
    file = tmp_path / "half.npz"
    np.savez(file, words=words, vectors=vectors, real=real)
    work.measure_coverage(Place(place.data_dir, str(file), "cpu"))
    (page, *_) = work.write_tables()
    header, row = (
        next(line for line in page.read_text().splitlines() if line.startswith(start))
        for start in ("| corpus |", "| trec |")
    )
    true = header.split(" | ").index("% of these true GoogleNews vectors |")
    path = tmp_path / "tables" / "results" / "vectors.json"
    shares = json.loads(path.read_text())["corpora"]["trec"]
    expected = 100 * shares["real_tokens"] / shares["tokens"]
    assert 0 < expected < 100
    assert row.split(" | ")[true] == f"{expected:.1f} |"
