"""What words say beside a network, inside an ONNX graph.

ONNX has an operation that counts n-grams, `TfIdfVectorizer`; all else is arithmetic on
the counts (`model.word_scores` has the formulas).
"""

import numpy as np

from textcapsules.deploy.onnx.graph import Graph, as_array
from textcapsules.model.word_scores import CLIP, PAIR, WordScores
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.text.vocabulary import UNK_ID

__all__ = ["write_words"]


def write_words(graph: Graph, words: WordScores, ids: str, scores: str) -> str:
    """Return a network's scores (B, J) of words (B, T) with what the words say added.

    Args:
        graph: to write to.
        words: the linear model.
        ids: that the network reads.
        scores: of the network.
    """
    ids = graph.op("Pad", ids, graph.integers(0, 0, 0, 1))  # T may be zero
    # A text without a known word keeps the network's scores, which are zero.
    last = graph.reduce("ReduceMax", ids, 1)  # (B, 1)
    has_words = graph.op("Greater", last, graph.integers(UNK_ID))
    decisions = write_decisions(graph, words, ids)
    alpha, beta, gamma = (graph.constant(weight) for weight in words.weights)
    ends = (graph.constant(end) for end in (CLIP, 1 - CLIP))
    kept = graph.op("Clip", scores, *ends)
    odds = graph.op("Div", kept, graph.op("Sub", graph.constant(1.0), kept))
    logits = graph.op("Mul", alpha, graph.op("Log", odds))
    logits = graph.op("Add", logits, graph.op("Mul", beta, decisions))
    together = graph.op("Sigmoid", graph.op("Add", logits, gamma))
    return graph.op("Where", has_words, together, scores)


def write_decisions(graph: Graph, words: WordScores, ids: str) -> str:
    """Return z (B, J) of words (B, T)."""
    if words.n_marked:
        first = graph.op("Sub", ids, graph.integers(words.n_marked))
        begins = graph.op("GreaterOrEqual", first, graph.integers(FIRST_PIECE))
        ids = graph.op("Where", begins, first, ids)
    counts = count_ngrams(graph, words, ids)  # (B, N)
    one = graph.constant(1.0)
    found = graph.op("Min", counts, one)
    values = graph.op("Add", one, graph.op("Log", graph.op("Max", counts, one)))
    values = graph.op("Mul", values, found)
    values = graph.op("Mul", values, graph.constant(as_array(words.idf)))
    squares = graph.reduce("ReduceSum", graph.op("Mul", values, values), 1)
    norm = graph.op(
        "Max", graph.op("Sqrt", squares), graph.constant(words.smallest_norm)
    )
    sums = graph.op("MatMul", values, graph.constant(as_array(words.weight)))
    decisions = graph.op("Div", sums, norm)
    return graph.op("Add", decisions, graph.constant(as_array(words.bias)))


def count_ngrams(graph: Graph, words: WordScores, ids: str) -> str:
    """Return how often each n-gram occurs in documents (B, T), (B, N)."""
    first, second = np.divmod(as_integers(words), PAIR)
    alone, paired = np.flatnonzero(second == 0), np.flatnonzero(second)
    pairs = np.stack([first[paired], second[paired]], 1).ravel()
    return graph.op(
        "TfIdfVectorizer",
        ids,
        mode="TF",
        min_gram_length=1,
        max_gram_length=2 if len(paired) else 1,
        max_skip_count=0,
        ngram_counts=[0, len(alone)][: 1 + bool(len(paired))],
        ngram_indexes=[*alone.tolist(), *paired.tolist()],
        pool_int64s=[*first[alone].tolist(), *pairs.tolist()],
    )


def as_integers(words: WordScores) -> np.ndarray:
    """Return the n-grams' numbers (N,)."""
    return words.keys.cpu().numpy()
