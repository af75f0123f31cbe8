import re

import pytest

from textcapsules.base.errors import CorpusError
from textcapsules.data.catalogue import CATALOGUE, CONTENTS, card
from textcapsules.data.convert import CONVERTERS

NAMES = [
    "mr",
    "sst2",
    "sst2-phrases",
    "subj",
    "trec",
    "cr",
    "ag-news",
    "reuters-multi",
    "reuters-full",
]
SHA256 = re.compile(r"[0-9a-f]{64}")


def test_catalogue_has_every_corpus_of_the_paper():
    assert list(CATALOGUE) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_card_is_complete(name):
    entry = card(name)
    assert entry.name == name
    assert len(set(entry.labels)) == len(entry.labels) >= 2
    assert entry.title and entry.citation and entry.terms and entry.split
    assert (entry.task == "multi-label") == name.startswith("reuters")
    assert entry.rule == ("reuters" if name.startswith("reuters") else "kim")
    assert entry.folder in CONVERTERS


@pytest.mark.parametrize("name", NAMES)
def test_card_reads_only_files_it_lists(name):
    entry = card(name)
    read = [*entry.train, entry.dev, entry.test]
    assert all(file in entry.files for file in read if file)
    assert any(file.startswith(f"{entry.folder}/") for file in entry.files)
    assert (entry.test is None) == (entry.layout != "sets")


@pytest.mark.parametrize("name", NAMES)
def test_sums_and_addresses_are_well_formed(name):
    entry = card(name)
    sums = [file.sha256 for file in (*entry.sources, *entry.files.values())]
    assert all(SHA256.fullmatch(value) for value in sums if value is not None)
    for source in entry.sources:
        assert source.urls and all(url.startswith("http") for url in source.urls)


@pytest.mark.parametrize("name", NAMES)
def test_every_fetched_text_is_checked_somehow(name):
    entry = card(name)
    raw_is_known = all(source.sha256 for source in entry.sources)
    fetched = [content for content in entry.files.values() if content.fetched]
    assert raw_is_known or all(content.sha256 for content in fetched)


def test_every_content_belongs_to_a_card():
    listed = {file for entry in CATALOGUE.values() for file in entry.files}
    assert listed == set(CONTENTS)


def test_reuters_corpora_differ_in_their_test_set_alone():
    multi, full = card("reuters-multi"), card("reuters-full")
    assert multi.files == full.files and multi.labels == full.labels
    assert len(multi.labels) == 8 and not {"wheat", "corn"} & set(multi.labels)


def test_unknown_name_is_answered_with_the_names():
    with pytest.raises(CorpusError, match=r"one of mr, .*reuters-full; got 'imdb'"):
        card("imdb")
