"""Add a linear model of words to a trained network, where dev texts gain by it.

The linear model is an SVM on TF-IDF, fitted on the single training texts
(`model.word_scores`). How much it counts is a logistic regression on the dev texts that
the thresholds are chosen on: it predicts every label of every text from two numbers,
the logit of the network's score and the SVM's decision. No network sees the SVM while
it learns, so each keeps what it alone can tell.

What is kept, no words, single words or pairs too, is what predicts the
labels of dev texts best when it is weighed on other dev texts: by log-loss, since exact
match at a threshold hardly tells apart what differs in a few texts. So texts whose
words say nothing by themselves are judged by the network alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.model.baselines.classic import NEVER, TfidfLinear, new_vectorizer
from textcapsules.model.classifier import encoder_states
from textcapsules.model.network import Network
from textcapsules.model.score import score_documents
from textcapsules.model.word_scores import Weights, WordScores
from textcapsules.text.batch import Batch, epoch_batches, make_batch
from textcapsules.text.encode import word_ids
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.text.vocabulary import UNK_ID
from textcapsules.training.calibrate import logit, sigmoid
from textcapsules.training.prepare import Encoded
from textcapsules.training.selection import DevSet

__all__ = ["add_word_scores", "fit_words", "weigh"]

FEW_TEXTS = 30  # with fewer dev texts nothing is weighed
MOST_TEXTS = 50_000  # that the linear model is fitted on, in seconds
MOST_WEIGHTS = 4_000_000  # of all n-grams and classes: 16 MB in the model folder
COST = 1.0  # the SVM's C, as of the baseline
LEAST_GAIN = 0.01  # share of the log-loss on dev that words must take away to be kept
LEAST = 0.1  # the network's share never falls below it: its capsules give the reasons
ALONE = np.array([1.0, 0.0, 0.0])  # the weights of the network alone
PULL = 0.05  # λ of the pull towards them
TYPICAL = 0.5  # the typical text: so many training texts have a smaller norm
MARGIN = 1.0  # distance of an SVM's margin from its plane
KINDS = ("words", "pairs")
BATCH_SIZE = 64


class Said(NamedTuple):
    """What a linear model of words says of documents."""

    decisions: NDArray[np.float64]  # z, (N, J)
    share: NDArray[np.float64]  # r, (N, 1): how far its words count


class Candidate(NamedTuple):
    """One choice of words to add, and what it reaches on dev."""

    kind: str
    loss: float  # by which one is chosen
    value: float  # what thresholds and epochs are chosen by, for the record
    words: WordScores | None


def add_word_scores(
    config: RunConfig,
    network: Network,
    train: Encoded,
    dev: DevSet,
) -> dict[str, Any] | None:
    """Add word scores to a network if dev gains by it; return what the record keeps.

    Args:
        config: of the run; `train.word_scores` says which words are asked.
        network: trained, in evaluation.
        train: the single training texts.
        dev: the dev texts.
    """
    asked, network.words = config.train.word_scores, None
    texts = dev.calibration_texts if dev.gives_several else dev.dev
    if asked == "none" or len(dev.dev.documents) < FEW_TEXTS or not texts.documents:
        return None
    states = encoder_states(network)
    # Also of texts read as a whole: `keep_pieces` marks the first piece that is left.
    n_marked = 0 if states is None else states.n_pieces
    scores = score_documents(network, texts.documents)

    def candidate(
        kind: str, said: Said, given: NDArray, words: WordScores | None
    ) -> Candidate:
        loss = held_out_loss(scores, said, texts.targets)
        return Candidate(kind, loss, dev.objective(given, texts.targets), words)

    found = [candidate("none", nothing_said(scores), scores, None)]
    for kind in KINDS if asked == "dev" else (asked,):
        words = fit_words(train, pairs=kind == "pairs", n_marked=n_marked)
        if words is None:
            continue
        said = decide(words, texts.documents)
        words = words.weighed(weigh(scores, said, texts.targets))
        together = blend(words, scores, texts.documents)
        found.append(candidate(kind, said, together, words))
    best = pick(found) if asked == "dev" else found[-1]
    if best.words is not None:
        network.words = best.words.to(next(network.parameters()).device)
    return {
        "kind": best.kind,
        **({} if best.words is None else best.words.weights._asdict()),
        "dev_loss": {each.kind: round(each.loss, 6) for each in found},
        "dev": {each.kind: round(each.value, 6) for each in found},
        "measure": config.train.threshold_for if dev.gives_several else "accuracy",
    }


def pick(found: Sequence[Candidate]) -> Candidate:
    """Return the candidate to keep; the first one is the network alone."""
    alone = found[0]
    best = min(found, key=lambda each: each.loss)
    # A network that makes no error on dev needs no help.
    is_better = best.loss <= (1 - LEAST_GAIN) * alone.loss and alone.value < 1
    return best if is_better else alone


def fit_words(train: Encoded, *, pairs: bool, n_marked: int = 0) -> WordScores | None:
    """Return an SVM on the words of texts, not yet weighed; None if they have none."""
    documents, targets = train
    if len(documents) > MOST_TEXTS:
        rows = np.random.default_rng(0).permutation(len(documents))[:MOST_TEXTS]
        documents, targets = [documents[row] for row in rows], targets[rows]
    plain = [unmarked(word_ids(ids), n_marked) for ids in documents]
    if not any((ids > UNK_ID).any() for ids in plain):
        return None
    n_classes = targets.shape[1]
    most = max(MOST_WEIGHTS // n_classes, 1)
    vectorizer = new_vectorizer(pairs=pairs, most=most).set_params(norm=None)
    values = vectorizer.fit_transform(plain)  # (N, n), sparse
    norms = np.sqrt(np.asarray(values.multiply(values).sum(1)).ravel())  # (N,)
    least_norm = float(np.quantile(norms[norms > 0], TYPICAL))
    features = values.multiply(1 / np.maximum(norms, least_norm)[:, None]).tocsr()
    linear = TfidfLinear(n_classes=n_classes, kind="svm", C=COST, several=True)
    linear.fit_features(features, targets)
    numbers: dict[int, int] = vectorizer.vocabulary_
    ngrams = np.array(sorted(numbers, key=numbers.__getitem__), np.int64)
    # Of a class without a text, or of all texts: as far from the plane as a margin.
    is_open = np.abs(linear.bias) < -NEVER
    bias = np.where(is_open, linear.bias, MARGIN * np.sign(linear.bias))
    return WordScores.of(
        ngrams,
        vectorizer.idf_,
        linear.weight,
        bias,
        least_norm=least_norm,
        n_marked=n_marked,
    )


def unmarked(ids: NDArray, n_marked: int) -> NDArray:
    """Return word pieces without the mark of those that begin a sentence."""
    return np.where(ids >= FIRST_PIECE + n_marked, ids - n_marked, ids)


def weigh(scores: NDArray, said: Said, targets: NDArray) -> Weights:
    """Return the weights with which logits and decisions predict labels best.

    They minimise the log-loss, summed over texts and labels, plus a pull towards the
    network alone: dev texts that can be told apart without error would have weights
    without bound. Neither counts against itself, and the network never counts less
    than `LEAST`.

    Args:
        scores: (N, J), of the network.
        said: of the words.
        targets: (N, J).
    """
    from scipy.optimize import minimize

    x, fixed = evidence(scores, said)
    truth = targets.astype(np.float64)

    def loss(at: NDArray) -> tuple[float, NDArray]:
        u, away = x @ at + fixed, at - ALONE
        gradient = ((sigmoid(u) - truth)[..., None] * x).mean((0, 1))
        pull = PULL / truth.size
        misfit = log_loss(u, truth) + pull * float(away @ away)
        return misfit, gradient + 2 * pull * away

    bounds = [(LEAST, None), (0, None), (None, None)]
    found = minimize(loss, ALONE, jac=True, bounds=bounds)
    return Weights(*found.x.tolist())


def held_out_loss(scores: NDArray, said: Said, targets: NDArray) -> float:
    """Return the mean log-loss of texts by weights from the other half of them."""
    (x, fixed), even = evidence(scores, said), np.arange(len(scores)) % 2 == 0
    losses = []
    for fitted in (even, ~even):
        part = Said(said.decisions[fitted], said.share[fitted])
        weights = np.array(weigh(scores[fitted], part, targets[fitted]))
        losses.append(log_loss((x @ weights + fixed)[~fitted], targets[~fitted]))
    return float(np.mean(losses))


def evidence(
    scores: NDArray, said: Said
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what `Weights` weigh (N, J, 3), and what is added to it (N, J)."""
    logits, (z, share) = logit(scores), said
    x = np.stack([logits, z, np.ones_like(z)], -1) * share[..., None]
    return x, (1 - share) * logits


def log_loss(logits: NDArray, targets: NDArray) -> float:
    """Return the mean log-loss of labels (N, J) by their logits."""
    return float((np.logaddexp(0, logits) - targets * logits).mean())


def nothing_said(scores: NDArray) -> Said:
    """Return what no words say of as many texts as have scores."""
    return Said(np.zeros_like(scores), np.ones((len(scores), 1)))


@torch.inference_mode()
def decide(words: WordScores, documents: Sequence[NDArray]) -> Said:
    """Return what words say of documents."""
    said = Said(
        np.zeros((len(documents), len(words.bias))), np.zeros((len(documents), 1))
    )
    for batch, rows in batches(documents):
        for whole, part in zip(said, words.decide(batch.ids, batch.mask), strict=True):
            whole[rows] = part.numpy()
    return said


@torch.inference_mode()
def blend(
    words: WordScores, scores: NDArray[np.float32], documents: Sequence[NDArray]
) -> NDArray[np.float32]:
    """Return a network's scores (N, J) of documents with what words say added."""
    together = np.zeros_like(scores)
    for batch, rows in batches(documents):
        given = torch.from_numpy(scores[rows])
        together[rows] = words(given, batch.ids, batch.mask).numpy()
    return together


def batches(documents: Sequence[NDArray]) -> Iterator[tuple[Batch, NDArray]]:
    """Yield documents in batches of like lengths, and which they are."""
    lengths = [len(ids) for ids in documents]
    nothing = np.zeros((len(documents), 0), dtype=np.float32)
    for rows in epoch_batches(lengths, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
        yield make_batch(documents, nothing, rows), rows
