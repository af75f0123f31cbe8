"""TF-IDF systems against scikit-learn on the same words as strings."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from textcapsules.model.baselines.classic import TfidfLinear

N_CLASSES = 3


def problem(n_texts: int = 60) -> tuple[list[np.ndarray], np.ndarray]:
    """Return documents of words 2 to 29, of which word 2 + class is frequent."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, N_CLASSES, n_texts)
    documents = [
        rng.permutation([*rng.integers(5, 30, 6), 2 + place, 2 + place]).astype(
            np.int32
        )
        for place in classes
    ]
    return documents, np.eye(N_CLASSES, dtype=np.float32)[classes]


def as_text(document: np.ndarray) -> str:
    return " ".join(f"w{word}" for word in document)


def make(kind: str, several: bool = False, C: float = 2.0) -> TfidfLinear:
    return TfidfLinear(n_classes=N_CLASSES, kind=kind, C=C, several=several)


def oracle_features(train: list[np.ndarray], test: list[np.ndarray]):
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    features = vectorizer.fit_transform(map(as_text, train))
    return features, vectorizer.transform(map(as_text, test))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_regression_is_the_librarys_pipeline(n_classes: int) -> None:
    documents, targets = problem()
    kept = targets[:, :n_classes].sum(1) > 0
    documents = [d for d, keep in zip(documents, kept, strict=True) if keep]
    targets = targets[kept][:, :n_classes]
    system = TfidfLinear(n_classes=n_classes, kind="lr", C=2.0, several=False)
    scores = system.fit(documents[:30], targets[:30]).scores(documents[30:])
    train, test = oracle_features(documents[:30], documents[30:])
    model = LogisticRegression(C=2.0, max_iter=1000).fit(train, targets[:30].argmax(1))
    np.testing.assert_allclose(scores, model.predict_proba(test), atol=1e-5)


def test_regression_of_each_class_is_the_librarys() -> None:
    documents, targets = problem()
    targets[::3] = np.maximum(targets[::3], [0, 0, 1])
    scores = make("lr", several=True).fit(documents[:40], targets[:40])
    train, test = oracle_features(documents[:40], documents[40:])
    model = OneVsRestClassifier(LogisticRegression(C=2.0, max_iter=1000))
    expected = model.fit(train, targets[:40]).predict_proba(test)
    np.testing.assert_allclose(scores.scores(documents[40:]), expected, atol=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_svm_is_the_librarys_distance_through_the_logistic_function(several) -> None:
    documents, targets = problem()
    scores = make("svm", several).fit(documents[:40], targets[:40])
    train, test = oracle_features(documents[:40], documents[40:])
    model = LinearSVC(C=2.0, random_state=0).fit(train, targets[:40].argmax(1))
    expected = 1 / (1 + np.exp(-model.decision_function(test)))
    np.testing.assert_allclose(scores.scores(documents[40:]), expected, atol=1e-3)


def test_unknown_words_part_pairs_and_count_nothing() -> None:
    documents, targets = problem()
    system = make("lr").fit(documents, targets)
    first, second = documents[0][:2]
    parted, more, pair = system.scores(
        [
            np.array([first, 1, second]),
            np.array([first, 1, 1, second, 1]),
            np.array([first, second]),
        ]
    )
    np.testing.assert_array_equal(parted, more)
    assert (parted != pair).any()


@pytest.mark.parametrize("kind", ["lr", "svm"])
@pytest.mark.parametrize("several", [False, True])
def test_class_without_a_text_scores_zero(kind: str, several: bool) -> None:
    documents, targets = problem()
    kept = targets[:, 1] == 0
    documents = [d for d, keep in zip(documents, kept, strict=True) if keep]
    scores = make(kind, several).fit(documents, targets[kept]).scores(documents)
    assert (scores[:, 1] == 0).all()
    assert (scores[:, [0, 2]] > 0).all()


@pytest.mark.parametrize("kind", ["lr", "svm"])
@pytest.mark.parametrize("several", [False, True])
def test_class_of_every_text_scores_one(kind: str, several: bool) -> None:
    documents, targets = problem()
    targets = np.tile(np.array([0, 1, 0], np.float32), (len(targets), 1))
    scores = make(kind, several).fit(documents, targets).scores(documents[:4])
    assert scores.tolist() == [[0, 1, 0]] * 4


@pytest.mark.parametrize("kind", ["lr", "svm"])
def test_file_gives_the_same_scores(tmp_path: Path, kind: str) -> None:
    documents, targets = problem()
    system = make(kind).fit(documents, targets)
    system.save(tmp_path / "model.safetensors")
    loaded = make(kind)
    loaded.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.scores(documents), system.scores(documents))


def test_damaged_file_and_other_sizes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    make("lr").fit(*problem()).save(path)
    with pytest.raises(ValueError, match=r"weight of shape \(3, \d+\), not \(4, "):
        TfidfLinear(n_classes=4, kind="lr", C=1.0, several=False).load(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"header|buffer|Metadata"):
        make("lr").load(path)


def test_no_documents_give_no_rows() -> None:
    assert make("lr").fit(*problem()).scores([]).shape == (0, N_CLASSES)
