"""Models without capsules are explained by gradients and by deleting words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from random_models import WORDS
from textcapsules.base.errors import ConfigError
from textcapsules.config import RunConfig
from textcapsules.data.example import Example
from textcapsules.draw.report import render_report
from textcapsules.inference.report import make_report
from textcapsules.model.baselines.convolutional import KimCnn
from textcapsules.model.baselines.recurrent import RecurrentNetwork
from textcapsules.model.classifier import Labels, TextClassifier
from textcapsules.model.network import Network
from textcapsules.reasons.attributions import faded_words, integrated_gradients
from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.faithfulness import measure_faithfulness
from textcapsules.reasons.routing_inspection import connections
from textcapsules.reasons.texts import explain
from textcapsules.text.vocabulary import PAD, UNK, TextTokenizer
from textcapsules.training.run import train
from toy import run_cli, tiny_config, toy_file

METHODS = ["gradient", "integrated", "erasure"]
LABELS = ("red", "green", "blue")
TEXTS = ["w1 w2 w3 w4 w5 w6 w7 w8", "", "w1", "nothing known", "w3 unknown w5"]


def classifier_of(network: Network) -> TextClassifier:
    tokenizer = TextTokenizer([PAD, UNK, *WORDS], rule="words")
    run = RunConfig().replace(text={"max_tokens": 16, "rule": "words"})
    labels = Labels(LABELS, (0.5,) * 3, "multi-label")
    return TextClassifier(run, tokenizer, labels, network.double().eval())


def random_cnn(**settings: Any) -> KimCnn:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(len(WORDS) + 2, 5, padding_idx=0)
    sizes: dict[str, Any] = {"ngram_sizes": (2, 3), "feature_maps": 6, "n_classes": 3}
    return KimCnn(embedding, several=True, **sizes, **settings)


def random_lstm() -> RecurrentNetwork:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(len(WORDS) + 2, 5, padding_idx=0)
    return RecurrentNetwork(
        embedding, hidden_size=4, n_classes=3, bidirectional=True, several=True
    )


NETWORKS = {
    "cnn": random_cnn,
    "cnn over the ends": lambda: random_cnn(edges=True),
    "bilstm": random_lstm,
}
networks = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
methods = pytest.mark.parametrize("method", METHODS)


def planted() -> TextClassifier:
    """Return a CNN that gives `red` for w3 and `blue` for w7, and looks at no other."""
    embedding = torch.nn.Embedding(len(WORDS) + 2, 2)
    network = KimCnn(
        embedding, ngram_sizes=(1,), feature_maps=2, n_classes=3, several=True
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        tokenizer = TextTokenizer([PAD, UNK, *WORDS], rule="words")
        for place, word in enumerate(("w3", "w7")):
            (found,) = tokenizer.locate([word], 16)
            embedding.weight[found.ids[0], place] = 1.0
        linear = next(p for n, p in network.ngrams.named_parameters() if p.ndim > 1)
        linear.view(2, -1).copy_(torch.eye(2))
        network.output.weight[0, 0] = network.output.weight[2, 1] = 6.0
        network.output.bias.fill_(-3.0)
    return classifier_of(network)


@networks
@methods
def test_scores_are_the_predicted_ones_and_a_batch_changes_nothing(make, method):
    classifier = classifier_of(make())
    together = explain(classifier, TEXTS, method=method)
    for text, found, predicted in zip(
        TEXTS, together, classifier.predict(TEXTS), strict=True
    ):
        scores = [label.score for label in found.labels]
        np.testing.assert_allclose(scores, predicted.scores, atol=1e-6)
        assert found.predicted == predicted.labels
        assert (found.orphan, found.leak, found.orphan_share) == (None, None, None)
        assert found.method == method
        alone = explain(classifier, text, method=method)
        for label, other in zip(found.labels, alone.labels, strict=True):
            np.testing.assert_allclose(label.tokens, other.tokens, atol=1e-6)
            assert [p.text for p in label.phrases] == [p.text for p in other.phrases]


@methods
def test_what_was_planted_is_named_and_nothing_else(method):
    words = ["w1", "w2", "w3", "w4", "w5", "w7", "w8"]
    text = " ".join(words)
    found = explain(planted(), text, method=method)
    assert found.predicted == ("red", "blue") or found.predicted == ("blue", "red")
    red, green, blue = found.labels
    for label, word in ((red, "w3"), (blue, "w7")):
        assert [phrase.text for phrase in label.phrases] == [word]
        place = words.index(word)
        assert label.tokens[place] > 0
        assert not any(label.tokens[:place] + label.tokens[place + 1 :])
    assert not green.phrases


@pytest.mark.slow
@networks
def test_integrated_gradients_add_up_to_the_rise_of_the_logit(make):
    network = make().double().eval()
    mask = torch.arange(8) < torch.tensor([[8], [5]])
    ids = torch.randint(2, 20, mask.shape) * mask
    found = integrated_gradients(network, ids, mask, [0, 1, 2], steps=400)
    with torch.no_grad():
        with faded_words(network.embedding, 0.0):
            start = network(ids, mask).logits
        rise = network(ids, mask).logits - start
    torch.testing.assert_close(found.sum(1).double(), rise, atol=5e-3, rtol=0)


@networks
def test_erasing_is_scoring_the_text_without_the_words(make):
    classifier, words = classifier_of(make()), ["w1", "w2", "w3", "w4", "w5", "w6"]
    (found,) = explain(classifier, [" ".join(words)], method="erasure", top=20)
    whole = classifier.scores([" ".join(words)])[0]
    for number, label in enumerate(found.labels):
        for phrase in label.phrases:
            start = words.index(phrase.text.split()[0])
            cut = words[:start] + words[start + len(phrase.text.split()) :]
            fall = whole[number] - classifier.scores([" ".join(cut)])[0][number]
            assert phrase.strength == pytest.approx(fall, abs=1e-6)


@pytest.mark.parametrize("method", ["couplings", "contributions"])
def test_capsules_methods_are_refused_with_what_there_is(method):
    expected = f"gradient, integrated, erasure for KimCnn; got '{method}'"
    with pytest.raises(ConfigError, match=expected):
        explain(classifier_of(random_cnn()), "w1", method=method)
    with pytest.raises(ConfigError, match=expected):
        measure_faithfulness(classifier_of(random_cnn()), ["w1"], methods=[method])
    with pytest.raises(ConfigError, match="must be a capsule network for its routing"):
        connections(classifier_of(random_cnn()), "w1")


def test_truthful_phrases_beat_random_ones_by_far():
    texts = [f"w1 w2 w{n} w4 w5 w6 w8 w9 w{m}" for n in (3, 7) for m in (10, 11)]
    found = measure_faithfulness(planted(), texts, draws=3)
    assert [row.method for row in found.methods] == ["gradient", "integrated", "random"]
    named, random = found.methods[1], found.methods[2]
    assert named.comprehensiveness > 0.9  # of 0.95 to 0.05 without the word
    assert random.comprehensiveness < named.comprehensiveness / 2
    assert "of its score" in found.verdict


def test_corpus_and_report_do_without_routing():
    examples = [Example("w1 w3 w5", ("red",)), Example("w7 w2", ("red",))] * 3
    found = explain_corpus(planted(), examples)
    assert (found.method, found.orphan) == ("gradient", None)
    assert [spoken.text for spoken in found.labels[0].phrases] == ["w3"]
    assert found.mistakes[0].predicted == ("blue",)
    settings: dict[str, Any] = {"source": "s", "title": "T", "lead": "L."}
    with pytest.raises(ConfigError, match="for KimCnn; got 'couplings'"):
        make_report(planted(), examples, method="couplings", **settings)
    made = make_report(planted(), examples, **settings)
    assert made.explained is not None
    assert (made.explained.convergence, made.explained.connections) == (None, None)
    page = render_report(made)
    assert "proposed by gradient" in page
    assert "orphan" not in page


@pytest.mark.parametrize("architecture", ["cnn", "bilstm"])
def test_a_trained_rival_is_explained_by_the_command(tmp_path: Path, architecture: str):
    config = tiny_config(toy_file(tmp_path)).replace(
        model={"architecture": architecture}, train={"epochs": 2}
    )
    train(config, tmp_path / "model")
    text = "the cat purrs and the dog barks"
    page = tmp_path / "why.html"
    ran = run_cli("explain", tmp_path / "model", text, "--out", page)
    assert ran.code == 0, ran.err
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["reasons"]["method"] in ("gradient", "integrated")
    assert f"proposed by {record['reasons']['method']}" in page.read_text()
    ran = run_cli("explain", tmp_path / "model", text, "--method", "couplings")
    assert ran.code == 2
    assert ran.err.startswith("textcapsules: method must be one of ")


@pytest.mark.parametrize("architecture", ["tfidf-lr", "tfidf-svm", "fasttext"])
def test_a_classic_system_is_explained_by_erasure(tmp_path: Path, architecture: str):
    config = tiny_config(toy_file(tmp_path)).replace(
        model={"architecture": architecture}
    )
    classifier = train(config, tmp_path / "model")
    words = ["cat", "purr", "kitten", "bark", "and", "wings"]
    text = " ".join(words)
    found = explain(classifier, text, top=20)
    assert (found.method, found.leak) == ("erasure", None)
    whole = classifier.scores([text])[0]
    np.testing.assert_allclose([label.score for label in found.labels], whole)
    n_phrases = 0
    for number, label in enumerate(found.labels):
        for phrase in label.phrases:
            named = phrase.text.split()
            start = words.index(named[0])
            cut = " ".join(words[:start] + words[start + len(named) :])
            fall = whole[number] - classifier.scores([cut])[0][number]
            assert phrase.strength == pytest.approx(fall, abs=1e-6)
            n_phrases += 1
    assert n_phrases
    assert explain(classifier, ["", text])[0].predicted == ()
    measured = measure_faithfulness(classifier, [text], draws=1)
    assert [row.method for row in measured.methods] == ["erasure", "random"]
    with pytest.raises(ConfigError, match=r"must be erasure for .*; got 'gradi"):
        explain(classifier, text, method="gradient")


@pytest.mark.slow
def test_a_model_of_characters_is_refused(tmp_path: Path):
    config = tiny_config(toy_file(tmp_path)).replace(
        model={"architecture": "cl-cnn"}, train={"epochs": 1}
    )
    train(config, tmp_path / "model")
    ran = run_cli("explain", tmp_path / "model", "the cat purrs")
    assert ran.code == 2
    assert ran.err.startswith("textcapsules: classifier must be a model of words")
