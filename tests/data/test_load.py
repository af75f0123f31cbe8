import pytest

from textcapsules.base.errors import ConfigError, CorpusError, DataError
from textcapsules.base.files import file_sha256
from textcapsules.config import DataConfig
from textcapsules.data.load import load_corpus, load_split
from toy import toy_file, toy_rows, write_csv


def test_file_is_split_without_loss(tmp_path):
    path = toy_file(tmp_path)
    corpus = load_corpus(DataConfig(source=str(path)))
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (54, 6, 0)
    assert sorted([*corpus.train, *corpus.dev]) == sorted(
        (text, (label,)) for text, label in toy_rows()
    )
    assert {label for example in corpus.dev for label in example.labels} == {
        "birds",
        "cats",
        "dogs",
    }
    assert (corpus.task, corpus.rule) == ("single-label", "words")
    assert corpus.facts["files"] == {"toy.csv": {"sha256": file_sha256(path)}}


def test_split_follows_its_seed_and_share(tmp_path):
    path = str(toy_file(tmp_path))
    first = load_corpus(DataConfig(source=path))
    assert load_corpus(DataConfig(source=path)) == first
    assert load_corpus(DataConfig(source=path, split_seed=1)).dev != first.dev
    assert len(load_corpus(DataConfig(source=path, dev_fraction=0.5)).dev) == 30


def test_given_dev_and_test_files_are_taken_whole(tmp_path):
    dev = write_csv(tmp_path / "dev.csv", toy_rows(5, seed=2))
    test = write_csv(tmp_path / "test.csv", toy_rows(7, seed=3))
    path = str(toy_file(tmp_path))
    corpus = load_corpus(DataConfig(source=path, dev=str(dev), test=str(test)))
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (60, 5, 7)
    assert set(corpus.facts["files"]) == {"toy.csv", "dev.csv", "test.csv"}


def test_several_labels_make_the_task(tmp_path):
    rows = [(text, f"{label},more") for text, label in toy_rows(12)]
    path = str(write_csv(tmp_path / "toy.csv", rows))
    corpus = load_corpus(DataConfig(source=path, separator=","))
    assert corpus.task == "multi-label"
    assert corpus.labels == ("birds", "cats", "dogs", "more")


def test_file_as_a_test_set_is_read_whole(tmp_path):
    path = str(toy_file(tmp_path))
    assert len(load_split(DataConfig(source=path), "test")) == 60
    assert len(load_split(DataConfig(source=path), "dev")) == 6
    other = str(write_csv(tmp_path / "test.csv", toy_rows(7, seed=3)))
    assert len(load_split(DataConfig(source=path, test=other), "test")) == 7


def test_embedded_corpus_needs_no_folder():
    corpus = load_corpus(DataConfig(source="tickets"))
    assert len(corpus.labels) >= 8
    assert corpus.train and corpus.dev and corpus.test


def test_unknown_split_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"train, dev or test; got 'all'"):
        load_split(DataConfig(source=str(toy_file(tmp_path))), "all")


def test_unknown_name_lists_the_corpora():
    with pytest.raises(CorpusError, match=r"tickets, .*mr.*; got 'movies'"):
        load_corpus(DataConfig(source="movies"))


def test_missing_corpus_says_how_to_get_it(tmp_path):
    with pytest.raises(CorpusError, match="textcapsules data fetch mr"):
        load_corpus(DataConfig(source="mr", data_dir=str(tmp_path)))


@pytest.mark.parametrize("option", ["dev", "test"])
def test_file_beside_a_corpus_is_refused(tmp_path, option):
    path = str(toy_file(tmp_path))
    config = DataConfig(source="tickets", **{option: path})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"{option} must go with a file of texts"):
        load_corpus(config)


def test_missing_file_is_told(tmp_path):
    with pytest.raises(DataError, match=r"gone.csv must be a file; got no such file"):
        load_corpus(DataConfig(source=str(tmp_path / "gone.csv")))
