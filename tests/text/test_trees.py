"""Dependency trees: one real parse, and what is kept of parses."""

import importlib
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textcapsules.base.errors import TextCapsulesError
from textcapsules.text import trees
from textcapsules.text.tokenize import tokenize
from textcapsules.text.trees import DependencyParser, ParseCache

CAT = ["the", "cat", "sat", "on", "the", "mat"]
CAT_HEADS = [1, 1, 0, -1, 1, -2]
DOCUMENTS = [["a", "b", "c"], [], ["<script>"], ["a", "b c"], ["😀"] * 4]


class Parsers:
    """Stands in for spaCy: every word hangs on the first; counts what it parsed."""

    def __init__(self) -> None:
        self.parsed: list[list[str]] = []

    def __call__(self, documents: list[list[str]]) -> list[np.ndarray]:
        self.parsed += documents
        return [-np.arange(len(words)).astype(np.int16) for words in documents]


def dependency_trees(
    documents: list[list[str]], cache: Path, on_rows: Any = None
) -> list[np.ndarray]:
    return DependencyParser(cache)(documents, on_rows)


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> Parsers:
    stand_in = Parsers()
    monkeypatch.setattr(trees, "parse", stand_in)
    return stand_in


@pytest.fixture
def no_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make spaCy impossible to import."""
    real = importlib.import_module

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("spacy"):
            raise ImportError(name)
        return real(name, *rest)

    trees.load_pipeline.cache_clear()
    monkeypatch.setattr(importlib, "import_module", refuse)


def listed(heads: list[np.ndarray]) -> list[list[int]]:
    return [tree.tolist() for tree in heads]


def test_simple_sentence_has_its_known_heads(tmp_path: Path) -> None:
    sentence = "The cat sat on the mat"
    words = [piece.text for piece in tokenize(sentence, "kim")]
    two = ["he", "slept", ".", "she", "left", "."]
    heads = dependency_trees([words, two, CAT[:1], ["😀", "<script>"]], tmp_path)
    assert words == CAT
    assert heads[0].tolist() == CAT_HEADS
    assert heads[1].tolist() == [1, 0, -1, 1, 0, -1]  # a root a sentence
    assert [len(tree) for tree in heads[2:]] == [1, 2]
    assert heads[0].dtype == np.int32


def test_kept_parses_need_no_spacy(
    tmp_path: Path, no_spacy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trees, "parse", Parsers())
        first = dependency_trees([CAT, *DOCUMENTS], tmp_path)
    again = dependency_trees([*DOCUMENTS, CAT], tmp_path)
    assert listed(again) == listed([*first[1:], first[0]])


def test_kept_parses_import_no_spacy(tmp_path: Path, parser: Parsers) -> None:
    dependency_trees([CAT], tmp_path)
    code = (
        "import sys; from textcapsules.text.trees import DependencyParser;"
        f"print(*DependencyParser({str(tmp_path)!r})([{CAT!r}])[0], *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:6] == ["0", "-1", "-2", "-3", "-4", "-5"]
    assert not {"spacy", "torch"} & set(done.stdout.split())


def test_missing_spacy_names_the_extra(tmp_path: Path, no_spacy: None) -> None:
    assert listed(dependency_trees([[]], tmp_path)) == [[]]
    with pytest.raises(TextCapsulesError, match=r"got none.*textcapsules\[baselines\]"):
        dependency_trees([CAT], tmp_path)


def test_each_document_is_parsed_once(tmp_path: Path, parser: Parsers) -> None:
    counted: list[int] = []
    dependency_trees([CAT, CAT, *DOCUMENTS], tmp_path, counted.append)
    assert parser.parsed == [CAT, *(words for words in DOCUMENTS if words)]
    assert sum(counted) == 5
    dependency_trees([DOCUMENTS[0], ["new"]], tmp_path, counted.append)
    assert parser.parsed[5:] == [["new"]]


def test_words_that_join_alike_are_different_documents(
    tmp_path: Path, parser: Parsers
) -> None:
    alike = [["a", "b"], ["a b"], ["ab"], ["a", "", "b"], ['a", "b'], ["a\0b"]]
    heads = dependency_trees(alike, tmp_path)
    assert [len(tree) for tree in heads] == [2, 1, 1, 3, 1, 1]
    assert len(parser.parsed) == len(alike)


def test_parses_are_kept_with_those_of_another_process(
    tmp_path: Path, parser: Parsers
) -> None:
    one, two = DependencyParser(tmp_path), DependencyParser(tmp_path)
    one([["a", "b"]])
    two([["c", "d"]])
    dependency_trees([["a", "b"], ["c", "d"]], tmp_path)
    assert parser.parsed == [["a", "b"], ["c", "d"]]


def test_parser_that_does_not_keep_still_reads(tmp_path: Path, parser: Parsers) -> None:
    dependency_trees([CAT], tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    passing = DependencyParser(tmp_path, keep=False)
    first = passing([["a", "b"], CAT])
    assert listed(passing([["a", "b"], CAT])) == listed(first)
    assert parser.parsed == [CAT, ["a", "b"], ["a", "b"]]
    assert path.read_bytes() == content


def test_many_documents_are_kept_in_portions(
    tmp_path: Path, parser: Parsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_PARSED_AT_ONCE", 3)
    counted: list[int] = []
    documents = [[str(number)] * number for number in range(1, 9)]
    heads = dependency_trees(documents, tmp_path, counted.append)
    assert counted == [3, 3, 2]
    assert [len(tree) for tree in heads] == list(range(1, 9))
    assert listed(dependency_trees(documents, tmp_path)) == listed(heads)
    assert len(parser.parsed) == 8


def spoil(content: bytes, way: str) -> bytes:
    if way == "cut":
        return content[:-3]
    if way == "empty":
        return b""
    if way == "text":
        return b"not a cache"
    place = len(content) - 1 if way == "head" else content.index(b"}}") + 5
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("way", ["cut", "empty", "text", "head", "key"])
def test_damaged_file_is_not_believed(
    tmp_path: Path, parser: Parsers, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    right = listed(dependency_trees([CAT], tmp_path))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(spoil(whole, way))
    with caplog.at_level(logging.WARNING):
        assert listed(dependency_trees([CAT], tmp_path)) == right
    assert "parsed anew" in caplog.text and str(path) in caplog.text
    assert parser.parsed == [CAT, CAT]
    assert path.read_bytes() == whole


def test_folder_that_cannot_be_written_costs_only_the_keeping(
    tmp_path: Path, parser: Parsers, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    assert listed(dependency_trees([["a", "b"]], tmp_path / "file")) == [[0, -1]]
    assert "must be writable" in caplog.text


def test_another_version_of_the_pipeline_has_its_own_file(
    tmp_path: Path, parser: Parsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependency_trees([CAT], tmp_path)
    monkeypatch.setattr(trees, "pipeline_version", lambda: "9.9.9")
    dependency_trees([CAT], tmp_path)
    assert parser.parsed == [CAT, CAT]
    assert len(list(tmp_path.iterdir())) == 2


def test_folder_is_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEXTCAPSULES_CACHE", str(tmp_path / "one"))
    assert ParseCache().path.parent == tmp_path / "one"
    assert ParseCache(tmp_path / "two").path.parent == tmp_path / "two"
    monkeypatch.delenv("TEXTCAPSULES_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "three"))
    assert ParseCache().path.parent == tmp_path / "three" / "textcapsules"


def test_head_too_far_away_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Word:
        def __init__(self, i: int) -> None:
            self.i, self.head = i, self

    words = [Word(place) for place in range(40_000)]
    for word in words:
        word.head = words[-1]
    pipeline = type("Pipeline", (), {"vocab": None, "pipe": lambda self, docs: docs})
    monkeypatch.setattr(
        trees, "load_pipeline", lambda: (pipeline(), lambda vocab, words: words)
    )
    (heads,) = trees.parse([words])  # type: ignore[list-item]
    assert heads[[0, 7231, 7232, 7233, -1]].tolist() == [0, 0, 32767, 32766, 0]
