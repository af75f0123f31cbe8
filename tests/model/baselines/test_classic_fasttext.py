"""fastText through its library, checked against its own matrices."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textcapsules.base.errors import TextCapsulesError
from textcapsules.model.baselines.classic import FastText

pytest.importorskip("fasttext")
CLASSES = np.random.default_rng(0).integers(0, 3, 60)
DOCUMENTS = [
    np.array([*np.random.default_rng(row).integers(5, 30, 6), 2 + place], np.int32)
    for row, place in enumerate(CLASSES)
]
TARGETS = np.eye(4, dtype=np.float32)[CLASSES]  # nobody carries the last class


def make(several: bool = False, **settings: Any) -> FastText:
    settings = {"size": 8, "epochs": 25, "rate": 0.5, "ngrams": 1, **settings}
    return FastText(n_classes=4, several=several, **settings)


def matrices(system: FastText) -> tuple[dict[str, np.ndarray], np.ndarray, list[int]]:
    words, _ = system.model.f.getVocab("strict")
    rows = np.array(system.model.f.getInputMatrix())
    output = np.array(system.model.f.getOutputMatrix())
    labels = [int(label.removeprefix("__label__")) for label in system.model.labels]
    return dict(zip(words, rows, strict=False)), output, labels


@pytest.mark.parametrize("several", [False, True])
def test_scores_are_those_of_the_averaged_vectors(several: bool) -> None:
    system = make(several).fit(DOCUMENTS, TARGETS)
    vectors, output, labels = matrices(system)
    for document, found in zip(DOCUMENTS, system.scores(DOCUMENTS), strict=True):
        words = [*map(str, document), "</s>"]  # the library ends every line so
        hidden = np.mean([vectors[word] for word in words if word in vectors], 0)
        logits = output @ hidden
        expected = np.zeros(4)
        alone = 1 / (1 + np.exp(-logits))
        shared = np.exp(logits) / np.exp(logits).sum()
        expected[labels] = alone if several else shared
        np.testing.assert_allclose(found, expected, atol=5e-3)  # it uses tables


@pytest.mark.parametrize("ngrams", [1, 2])
@pytest.mark.parametrize("several", [False, True])
def test_planted_words_are_learnt(several: bool, ngrams: int) -> None:
    scores = make(several, ngrams=ngrams).fit(DOCUMENTS, TARGETS).scores(DOCUMENTS)
    assert (scores.argmax(1) == CLASSES).mean() > 0.9
    assert (scores[:, 3] == 0).all()
    assert scores.min() >= 0
    assert scores.max() <= 1


def test_fit_repeats_and_its_seed_matters() -> None:
    one = make().fit(DOCUMENTS, TARGETS).scores(DOCUMENTS)
    again = make().fit(DOCUMENTS, TARGETS).scores(DOCUMENTS)
    other = make(seed=1).fit(DOCUMENTS, TARGETS).scores(DOCUMENTS)
    assert (one == again).all()
    assert (one != other).any()


def test_file_gives_the_same_scores_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    system = make().fit(DOCUMENTS, TARGETS)
    system.save(path)
    loaded = make()
    loaded.load(path)
    assert (loaded.scores(DOCUMENTS) == system.scores(DOCUMENTS)).all()
    with pytest.raises(ValueError, match="labels of another model"):
        FastText(n_classes=2, several=False, size=8, epochs=1, rate=0.5, ngrams=1).load(
            path
        )


@pytest.mark.parametrize("kept", [0, 8, 100, 1000])
def test_file_that_was_cut_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "model.bin"
    make().fit(DOCUMENTS, TARGETS).save(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="not what was written"):
        make().load(path)


def test_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"no model at all")
    with pytest.raises(ValueError, match=r"no digest of it, model\.bin\.sha256"):
        make().load(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name("model.bin.sha256").write_text(f"{digest}  model.bin\n")
    with pytest.raises(ValueError, match="wrong file format"):
        make().load(path)


def test_texts_without_known_words_are_left_out_of_the_fit() -> None:
    unknown = np.array([0, 1, 1], np.int32)
    alone = make().fit(DOCUMENTS, TARGETS).scores(DOCUMENTS)
    documents = [*DOCUMENTS, unknown, unknown[:0]]
    targets = np.concatenate([TARGETS, TARGETS[:2]])
    assert (make().fit(documents, targets).scores(DOCUMENTS) == alone).all()


def test_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(TextCapsulesError, match=r"textcapsules\[baselines\]"):
        make()


def test_texts_sorted_by_class_are_learnt_as_well_as_mixed_ones() -> None:
    """The library reads in order: without a shuffle the last class is remembered."""
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1], 500)
    documents = [
        np.array([*rng.integers(5, 13, 12), 3 + place], np.int32) for place in classes
    ]
    system = FastText(n_classes=2, several=False, size=8, epochs=3, rate=0.5, ngrams=1)
    system.fit(documents, np.eye(2, dtype=np.float32)[classes])
    assert (system.scores(documents).argmax(1) == classes).mean() > 0.95
