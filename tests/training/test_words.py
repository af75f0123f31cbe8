"""The say of words: how it is weighed and kept, in a run and in its folder."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import LinearSVC
from torch import Tensor

from run_folders import weights
from textcapsules.base.errors import ConfigError, ModelFolderError
from textcapsules.cli.train import print_words
from textcapsules.config import CHARACTERS, CLASSIC, RunConfig, preset
from textcapsules.data.load import load_corpus
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.network import ClassOutput, Network
from textcapsules.reasons.texts import explain
from textcapsules.text import encode
from textcapsules.training import words as module
from textcapsules.training.prepare import Encoded
from textcapsules.training.resolve import resolve
from textcapsules.training.run import resume, train
from textcapsules.training.selection import DevSet
from textcapsules.training.words import (
    LEAST,
    PULL,
    Candidate,
    Said,
    add_word_scores,
    fit_words,
    held_out_loss,
    pick,
    weigh,
)
from tiny_encoder import write_encoder
from toy import (
    TINY,
    TINY_TRAIN,
    model_copy,
    refusal,
    run_cli,
    tiny_config,
    toy_file,
    toy_rows,
    without_sums,
    worded_config,
    worded_model,
    write_csv,
)

N_CLASSES = 3
TEXTS = ["my cat purr", "", "zzz qqq", "cat", "a dog bark and a bird sing " * 9]


# Weights.


def sigmoid(values: NDArray) -> NDArray:
    return 1 / (1 + np.exp(-values))


def logits_and_decisions(words: float, seed: int = 0) -> tuple[NDArray, ...]:
    """Draw labels of 600 texts by the logit's weight 1.5 and a weight of z."""
    draw = np.random.default_rng(seed)
    logits, z = draw.normal(size=(2, 600, N_CLASSES)) * 2
    p = sigmoid(1.5 * logits + words * z - 0.3)
    return sigmoid(logits), z, (draw.random(p.shape) < p).astype(np.float32)


def in_full(z: NDArray) -> Said:
    """Return decisions for texts with many words."""
    return Said(z, np.ones((len(z), 1)))


def loss(at: NDArray, scores: NDArray, z: NDArray, targets: NDArray) -> float:
    logits = np.log(scores / (1 - scores))
    p = sigmoid(at[0] * logits + at[1] * z + at[2])
    return log_loss(targets.ravel() > 0, p.ravel())


def test_weights_of_many_texts_are_those_of_an_unpenalised_regression() -> None:
    scores, z, targets = logits_and_decisions(0.8)
    found = weigh(scores, in_full(z), targets)
    x = np.stack([np.log(scores / (1 - scores)).ravel(), z.ravel()], 1)
    model = LogisticRegression(C=1e9, tol=1e-8).fit(x, targets.ravel())
    expected = [*model.coef_[0], model.intercept_[0]]
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("words", [0.8, 0.0, -0.8], ids=["good", "useless", "wrong"])
@pytest.mark.parametrize("network", [1, -1], ids=["good network", "wrong network"])
def test_no_weights_within_bounds_are_better(words: float, network: int) -> None:
    scores, z, targets = logits_and_decisions(words)
    scores = scores if network == 1 else 1 - scores
    found = weigh(scores, in_full(z), targets)
    assert found.network >= LEAST and found.words >= 0
    assert (found.network == LEAST) == (network == -1)
    if words == 0.0:
        assert found.words < 0.1
    if words < 0:
        assert found.words == 0

    def penalised(at: NDArray) -> float:
        pull = PULL * ((at[0] - 1) ** 2 + at[1] ** 2 + at[2] ** 2) / targets.size
        return loss(at, scores, z, targets) + pull

    draw, least = np.random.default_rng(1), penalised(np.array(found))
    for size in (0.01, 0.1, 1.0):
        for step in draw.normal(size=(40, 3)) * size:
            at = np.maximum(found + step, [LEAST, 0, -np.inf])
            assert penalised(at) >= least - 1e-7


def test_texts_told_apart_without_error_have_moderate_weights() -> None:
    targets = np.eye(4, dtype=np.float32)[np.arange(40) % 4]
    scores, z = np.full_like(targets, 0.5), targets - 0.6
    found = weigh(scores, in_full(z), targets)
    assert found.words < 10
    # So much is left of the error without the pull: weights grow without bound.
    exact = minimize(loss, [1.0, 0.0, 0.0], (scores, z, targets)).x
    assert exact[1] > 20


def test_texts_with_few_words_count_less_in_the_weights() -> None:
    scores, z, targets = logits_and_decisions(0.8)
    # A third of the texts have no words, and decisions that would mislead.
    share = np.ones((len(z), 1))
    share[::3], misled = 0.0, z.copy()
    misled[::3] = 9.0
    kept = np.arange(len(z)) % 3 > 0
    found = weigh(scores, Said(misled, share), targets)
    expected = weigh(scores[kept], in_full(z[kept]), targets[kept])
    np.testing.assert_allclose(found, expected, atol=2e-3)


# The linear model.


def texts_of(classes: NDArray, seed: int = 0, filler: int = 8) -> Encoded:
    """Return texts with one word of their class, 5 + class, among others."""
    draw = np.random.default_rng(seed)
    documents = [
        draw.permutation([5 + each, *draw.integers(filler, 20, 6)]).astype(np.int32)
        for each in classes
    ]
    return Encoded(documents, np.eye(N_CLASSES, dtype=np.float32)[classes])


def drawn(n_texts: int, seed: int = 0) -> NDArray:
    return np.random.default_rng([seed, 7]).integers(0, N_CLASSES, n_texts)


def decisions(words: Any, documents: list[NDArray]) -> NDArray:
    return module.decide(words, documents).decisions


@pytest.mark.parametrize("pairs", [False, True], ids=["words", "pairs"])
def test_it_is_scikit_learns_also_where_a_bias_passes_the_margin(pairs: bool) -> None:
    # Two words together name the first class; each alone, none of it.
    classes = np.repeat([0, 1, 2], 40)
    documents = [np.array(([2, 3], [2], [3])[each], np.int32) for each in classes]
    targets = np.eye(N_CLASSES, dtype=np.float32)[classes]
    ngrams = (1, 2) if pairs else (1, 1)
    norm: Any = None
    features: Any = TfidfVectorizer(ngram_range=ngrams, sublinear_tf=True, norm=norm)
    texts = [" ".join(f"w{n}" for n in ids) for ids in documents]
    rows = features.fit_transform(texts).toarray()
    norms = np.linalg.norm(rows, axis=1)
    rows /= np.maximum(norms, np.median(norms))[:, None]
    planes: list[Any] = [LinearSVC(random_state=0) for _ in range(N_CLASSES)]
    for plane, target in zip(planes, targets.T, strict=True):
        plane.fit(rows, target)
    words = fit_words(Encoded(documents, targets), pairs=pairs)
    assert words is not None
    expected = np.stack([plane.decision_function(rows) for plane in planes], 1)
    np.testing.assert_allclose(decisions(words, documents), expected, atol=1e-4)
    assert pairs or planes[0].intercept_[0] < -1.1


def test_a_class_without_a_text_and_one_of_all_texts_are_a_margin_away() -> None:
    documents, targets = texts_of(drawn(30))
    targets[:, 1], targets[:, 2] = 0, 1
    words = fit_words(Encoded(documents, targets), pairs=False)
    assert words is not None
    found = decisions(words, documents)
    assert (found[:, 1] == -1).all() and (found[:, 2] == 1).all()
    assert found[:, 0].std() > 0.1


def test_the_most_frequent_ngrams_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WEIGHTS", 3 * N_CLASSES + 1)
    documents = [np.array([2] * 6 + [3] * 5 + [4] * 4 + [5, 6], np.int32)] * 2
    documents += [np.array([2, 3, 4], np.int32)]
    targets = np.eye(N_CLASSES, dtype=np.float32)
    words = fit_words(Encoded(documents, targets), pairs=False)
    assert words is not None
    assert words.keys.tolist() == [each * 2**32 for each in (2, 3, 4)]


def test_many_texts_are_fitted_on_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TEXTS", 20)
    documents, targets = texts_of(drawn(50))
    documents = [np.append(ids, 30 + row) for row, ids in enumerate(documents)]
    words = fit_words(Encoded(documents, targets), pairs=False)
    assert words is not None
    # Of each text's own word: 20 are left, in one of 20 texts.
    assert (words.keys >= 30 * 2**32).sum() == 20
    assert words.idf.max().item() == pytest.approx(math.log(21 / 2) + 1)


def test_marked_pieces_count_as_those_inside() -> None:
    documents, targets = texts_of(drawn(40))
    marked = [np.append(ids[:1] + 18, ids[1:]) for ids in documents]
    plain = fit_words(Encoded(documents, targets), pairs=True)
    words = fit_words(Encoded(marked, targets), pairs=True, n_marked=18)
    assert plain is not None and words is not None and words.n_marked == 18
    assert torch.equal(words.keys, plain.keys)
    np.testing.assert_array_equal(decisions(words, marked), decisions(plain, documents))


def test_texts_without_a_known_word_have_no_model() -> None:
    _, targets = texts_of(drawn(4))
    assert fit_words(Encoded([np.ones(3, np.int32)] * 4, targets), pairs=True) is None


# Whether the say is kept.


class Reader(Network):
    """Gives a text the logits of its words 5 to 7, times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__(N_CLASSES)
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        found = torch.stack([(ids == 5 + each).any(1) for each in range(3)], 1)
        return ClassOutput((2.0 * found - 1) * self.factor, several=True)


def dev_set(asked: str, dev: Encoded, **options: Any) -> DevSet:
    options = {"select": "accuracy", "task": "single-label", **options}
    return DevSet(RunConfig().replace(train={"word_scores": asked, **options}), dev)


def add(asked: str, network: Network, n_dev: int = 40, **options: Any) -> Any:
    known = texts_of(drawn(90, 1), 1)
    dev = dev_set(asked, texts_of(drawn(n_dev, 2), 2), **options)
    return add_word_scores(dev.config, network.eval(), known, dev), dev


def test_words_are_kept_where_the_network_tells_nothing() -> None:
    network = Reader(0.0)
    record, _ = add("dev", network)
    assert record["kind"] == "words"  # pairs do no better
    assert record["dev"]["none"] < 0.6 < 0.95 < record["dev"]["words"]
    assert network.words is not None
    given = network.words.weights._asdict()
    assert {key: record[key] for key in given} == given
    assert torch.allclose(network.words.weighing, torch.tensor(tuple(given.values())))


def test_words_are_left_out_where_they_tell_nothing() -> None:
    documents, targets = texts_of(drawn(90, 1), 1)
    shuffled = Encoded(documents, np.random.default_rng(3).permutation(targets))
    network, dev = Reader(0.5), dev_set("dev", texts_of(drawn(200, 2), 2))
    network.factor.data[...] = 0.2
    right, wrong = dev.dev.documents[:100], dev.dev.documents[100:]
    dev.dev.documents[:] = [*right, *(ids[ids > 7] for ids in wrong)]
    record = add_word_scores(dev.config, network.eval(), shuffled, dev)
    assert record is not None and record["dev"]["none"] < 0.9
    assert (record["kind"], network.words) == ("none", None)


def test_one_is_chosen_by_the_loss_on_texts_that_it_was_not_weighed_on() -> None:
    scores, z, targets = logits_and_decisions(0.8)
    even = np.arange(len(scores)) % 2 == 0
    losses = [
        loss(
            np.array(weigh(scores[a], in_full(z[a]), targets[a])),
            scores[b],
            z[b],
            targets[b],
        )
        for a, b in ((even, ~even), (~even, even))
    ]
    assert held_out_loss(scores, in_full(z), targets) == pytest.approx(
        np.mean(losses), rel=1e-5
    )


def candidate(kind: str, loss: float, value: float = 0.5) -> Candidate:
    return Candidate(kind, loss, value, None)


@pytest.mark.parametrize(
    ("alone", "others", "kept"),
    [
        ((1.0, 0.5), (0.98, 0.97), "pairs"),
        ((1.0, 0.5), (0.97, 0.98), "words"),
        ((1.0, 0.5), (0.97, 0.97), "words"),
        ((1.0, 0.5), (0.995, 1.2), "none"),
        ((1.0, 1.0), (0.5, 0.5), "none"),
    ],
)
def test_a_say_must_be_worth_it(
    alone: tuple[float, float], others: tuple[float, float], kept: str
) -> None:
    words, pairs = others
    found = [candidate("none", *alone), candidate("words", words)]
    assert pick([*found, candidate("pairs", pairs)]).kind == kept


def test_a_network_without_an_error_stays_alone() -> None:
    network = Reader(3.0)
    record, _ = add("dev", network)
    assert record["dev"]["none"] == 1.0
    assert (record["kind"], network.words) == ("none", None)
    assert "words" not in record and set(record["dev"]) == {"none", "words", "pairs"}


@pytest.mark.parametrize("asked", ["words", "pairs"])
def test_words_asked_for_are_kept_in_any_case(asked: str) -> None:
    network = Reader(3.0)
    record, _ = add(asked, network)
    assert record["kind"] == asked and set(record["dev"]) == {"none", asked}
    assert network.words is not None
    assert network.words.has_pairs == (asked == "pairs")


def test_pairs_are_kept_where_only_they_tell() -> None:
    draw = np.random.default_rng(0)

    def ordered(n_texts: int) -> Encoded:
        classes = draw.integers(0, 2, n_texts)
        orders = [np.array([8, 9] if each else [9, 8], np.int32) for each in classes]
        return Encoded(orders, np.eye(N_CLASSES, dtype=np.float32)[classes])

    network, dev = Reader(0.0), dev_set("dev", ordered(40))
    record = add_word_scores(dev.config, network, ordered(60), dev)
    assert record is not None and record["kind"] == "pairs"
    assert record["dev"]["pairs"] == 1.0 > record["dev"]["words"] + 0.2


@pytest.mark.parametrize("calibrate_on", ["joined", "single+joined"])
@pytest.mark.parametrize("thresholds", ["one", "per-label"])
def test_with_several_labels_the_thresholds_objective_decides(
    calibrate_on: str, thresholds: str
) -> None:
    network, (documents, targets) = Reader(0.5), texts_of(drawn(60, 2), 2)
    documents[:15] = documents[15:30]  # whose words say something else
    options = {"calibrate_on": calibrate_on, "thresholds": thresholds}
    dev = dev_set("words", Encoded(documents, targets), select="joined", **options)
    known = texts_of(drawn(90, 1), 1)
    record = add_word_scores(dev.config, network.eval(), known, dev)
    assert record is not None
    together = dev.calibrate(network)
    assert together["value"] == pytest.approx(record["dev"]["words"], abs=1e-6)
    assert together["value"] != pytest.approx(together["value_single"], abs=1e-3)
    network.words = None
    assert dev.calibrate(network)["value"] == pytest.approx(record["dev"]["none"])


@pytest.mark.parametrize("asked", ["none", "dev", "words"])
def test_nothing_is_weighed_on_few_texts_or_unasked(asked: str) -> None:
    network = Reader(0.0)
    record, _ = add(asked, network, n_dev=29 if asked != "none" else 40)
    assert record is None and network.words is None


def test_an_earlier_say_is_not_weighed_again() -> None:
    network = Reader(0.0)
    first, _ = add("words", network)
    again, _ = add("words", network)
    assert first == again


# A run and its folder.


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    return TextClassifier.load(worded_model(), "cpu")


def test_predictions_are_the_scores_of_network_and_words(
    classifier: TextClassifier,
) -> None:
    network: Any = classifier.network
    found = classifier.predict(TEXTS)
    for text, each in zip(TEXTS, found, strict=True):
        (document,) = classifier.encode([text])
        if not len(document):
            assert not each.scores.any()
            continue
        ids = torch.from_numpy(document[None].astype(np.int64))
        with torch.no_grad():
            expected = network.score(ids, ids > 0)[0]
            alone = network(ids, ids > 0).scores[0]
        np.testing.assert_allclose(each.scores, expected, atol=1e-6)
        assert not np.allclose(each.scores, alone, atol=1e-3)


def test_the_record_tells_what_words_add(classifier: TextClassifier) -> None:
    record, network = classifier.record["word_scores"], classifier.network
    assert isinstance(network, Network) and network.words is not None
    assert record["kind"] == "pairs" and set(record["dev"]) == {"none", "pairs"}
    weighing = [record[key] for key in ("network", "words", "offset")]
    assert network.words.weights == pytest.approx(weighing, rel=1e-6)


def test_another_training_and_a_resumed_one_end_as_the_first(tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 1:
            raise KeyError

    config = worded_config(toy_file(tmp_path, 360))
    with pytest.raises(KeyError):
        train(config, tmp_path / "cut", test_reasons=False, on_epoch=stop)
    torch.manual_seed(7)
    model = resume(tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(worded_model())
    loaded = TextClassifier.load(worded_model(), "cpu")
    assert np.array_equal(model.scores(TEXTS), loaded.scores(TEXTS))
    assert model.record["word_scores"] == loaded.record["word_scores"]
    finished = resume(tmp_path / "cut")  # a finished run is only loaded
    assert np.array_equal(finished.scores(TEXTS), loaded.scores(TEXTS))


def test_a_saved_model_is_the_same_folder(
    classifier: TextClassifier, tmp_path: Path
) -> None:
    classifier.save(tmp_path / "again")
    assert weights(tmp_path / "again") == weights(worded_model())


DAMAGE: dict[str, tuple[str, Any, str]] = {
    "missing": ("idf", None, "words without idf"),
    "shape": ("weight", lambda t: t[:, :2].clone(), "words.weight of shape"),
    "falling": ("keys", lambda t: t.flip(0), "words.keys that do not rise"),
    "infinite": ("bias", lambda t: t / 0, "numbers that are not finite"),
}


@pytest.mark.parametrize(("name", "change", "said"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_words_are_named(
    tmp_path: Path, name: str, change: Any, said: str
) -> None:
    TextClassifier.load(worded_model(), "cpu").save(tmp_path)
    path = without_sums(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    if (value := tensors.pop(f"words.{name}")) is not None and change is not None:
        tensors[f"words.{name}"] = change(value)
    save_file(tensors, path)
    match = rf"model\.safetensors must hold the weights that .*; got: {said}"
    with pytest.raises(ModelFolderError, match=match) as caught:
        TextClassifier.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_model_without_words_has_none(tmp_path: Path) -> None:
    network = TextClassifier.load(model_copy(tmp_path), "cpu").network
    assert isinstance(network, Network) and network.words is None


def test_the_command_line_takes_the_option(tmp_path: Path) -> None:
    flags = ["--data", toy_file(tmp_path, 24), *TINY, "--epochs", 1]
    out = ["--out", tmp_path / "model"]
    for value in ("words", "dev"):
        options = ["--word-scores", value, "--overwrite"]
        assert run_cli("train", *flags, *options, *out).code == 0
        config = TextClassifier.load(tmp_path / "model").config
        assert config.train.word_scores == value
    said = refusal("train", *flags, "--word-scores", "all", "--out", tmp_path / "new")
    assert "must be one of 'none', 'words', 'pairs', 'dev'; got 'all'" in said


def test_training_says_what_words_are_worth(tmp_path: Path) -> None:
    flags = [*TINY, "--epochs", 1, "--overwrite", "--out", tmp_path / "model"]
    several = ["--task", "multi-label"]
    for rows, more, said in (
        (360, [], r"linear model of words and pairs of words is added.* dev accuracy"),
        (360, several, r"added to the network: dev log-loss .*; dev exact match \d"),
        (24, [], r"No linear model of words is added .*: that takes 30 dev texts; got"),
    ):
        data = toy_file(tmp_path, rows)
        ran = run_cli("train", "--data", data, "--word-scores", "pairs", *flags, *more)
        assert ran.code == 0 and re.search(said, " ".join(ran.out.split())), ran.out


@pytest.mark.parametrize(
    ("loss", "value", "said"),
    [
        (0.4, 0.8, "dev log-loss is 0.400, with it 0.500."),
        (0.4, 1.0, "it makes no error on dev."),
    ],
)
def test_training_says_why_no_words_are_added(
    loss: float, value: float, said: str, capsys: pytest.CaptureFixture
) -> None:
    words: dict[str, Any] = {
        "kind": "none",
        "measure": "accuracy",
        "dev": {"none": value, "words": 1},
    }
    words["dev_loss"] = {"none": loss, "words": 0.5, "pairs": 0.6}
    print_words(SimpleNamespace(record={"word_scores": words}))
    assert said in " ".join(capsys.readouterr().out.split())


WITHOUT = (*CHARACTERS, *CLASSIC, "tree-lstm")
WITH = ("capsule-a", "capsule-b", "lstm", "bilstm", "lr-lstm", "cnn")


@pytest.mark.parametrize("architecture", [*WITH, *WITHOUT])
def test_only_networks_of_words_have_words(tmp_path: Path, architecture: str) -> None:
    config = tiny_config(
        toy_file(tmp_path, 24),
        model={"architecture": architecture},
        train={"word_scores": "dev"},
    )
    corpus = load_corpus(config.data)
    found = resolve(config, corpus).train.word_scores
    assert found == ("none" if architecture in WITHOUT else "dev")
    asked = config.replace(train={"word_scores": "pairs"})
    if architecture in WITHOUT:
        with pytest.raises(ConfigError, match=r"word_scores must be none for .* pairs"):
            resolve(asked, corpus)
    else:
        assert resolve(asked, corpus).train.word_scores == "pairs"


@pytest.mark.slow
@pytest.mark.parametrize("encode_by", ["sentences", "texts"])
def test_words_of_pieces_are_known_where_others_are_deleted(
    tmp_path: Path, encode_by: str
) -> None:
    write_encoder(tmp_path / "encoder")
    config = preset("encoder-frozen").replace(
        data={"source": str(toy_file(tmp_path, 360))},
        text={"encoder": str(tmp_path / "encoder"), "encode_by": encode_by},
        model={"architecture": "encoder-linear"},
        train={**TINY_TRAIN, "epochs": 1, "batch_size": 20, "word_scores": "words"},
    )
    classifier = train(config, tmp_path / "model", test_reasons=False)
    words = ["cat", "bark", "the", "dog", "purr"]  # one piece each
    found = explain(classifier, " ".join(words), method="erasure", verify=False)
    shorter = [" ".join(words[:k] + words[k + 1 :]) for k in range(len(words))]
    whole, *rest = classifier.scores([" ".join(words), *shorter])
    falls = whole - np.array(rest)
    assert falls[0].max() > 0.05
    for label, fall in zip(found.labels, falls.T, strict=True):
        np.testing.assert_allclose(label.tokens, fall, atol=2e-3)


class ChainParser:
    """Every word's head is the next one: no spaCy needed."""

    def __init__(self, *, keep: bool) -> None:
        del keep

    def __call__(self, documents: list[list[str]]) -> list[NDArray]:
        return [np.arange(len(words))[::-1].clip(max=1) for words in documents]


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    ["lstm", "bilstm", "lr-lstm", "cnn", "cl-cnn", "tree-lstm", "tfidf-lr", "fasttext"],
)
def test_every_system_trains_and_loads_with_or_without_words(
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW_TEXTS", 1)
    monkeypatch.setattr(encode, "DependencyParser", ChainParser)
    rows = [row for row in toy_rows(60) if row[1] != "birds"]  # lr-lstm tells two
    config = tiny_config(
        write_csv(tmp_path / "rows.csv", rows),
        model={"architecture": architecture},
        baseline={"hidden_size": 8, "feature_maps": 4, "characters": 123},
        train={"epochs": 1, "word_scores": "words" if architecture in WITH else "dev"},
    )
    model = train(config, tmp_path / "model", test_reasons=False)
    loaded = TextClassifier.load(tmp_path / "model", "cpu")
    assert np.array_equal(loaded.scores(TEXTS), model.scores(TEXTS))
    has_words = getattr(loaded.network, "words", None) is not None
    assert has_words == ("word_scores" in loaded.record) == (architecture in WITH)
