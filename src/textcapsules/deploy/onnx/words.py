"""What words say beside a network, inside an ONNX graph.

ONNX has an operation that counts n-grams, `TfIdfVectorizer`; all else is arithmetic on
the counts (`model.word_scores` has the formulas).
"""

import numpy as np

from textcapsules.deploy.onnx.graph import Graph, as_array
from textcapsules.model.word_scores import CLIP, FULL, PAIR, WordScores
from textcapsules.text.pieces import FIRST_PIECE

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
    decisions, share = write_decisions(graph, words, ids)
    alpha, beta, gamma = words.weights
    ends = (graph.constant(end) for end in (CLIP, 1 - CLIP))
    kept = graph.op("Clip", scores, *ends)
    odds = graph.op("Div", kept, graph.op("Sub", graph.constant(1.0), kept))
    logits = graph.op("Log", odds)
    said = graph.op("Mul", graph.constant(alpha - 1), logits)
    said = graph.op("Add", said, graph.op("Mul", graph.constant(beta), decisions))
    said = graph.op("Add", said, graph.constant(gamma))
    together = graph.op("Add", logits, graph.op("Mul", share, said))
    has_words = graph.op("Greater", share, graph.constant(0.0))  # (B, 1)
    return graph.op("Where", has_words, graph.op("Sigmoid", together), scores)


def write_decisions(graph: Graph, words: WordScores, ids: str) -> tuple[str, str]:
    """Return z (B, J) of words (B, T), and how far they count, r (B, 1)."""
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
    norm = graph.op("Sqrt", squares)
    divisor = graph.op("Max", norm, graph.constant(words.smallest_norm))
    share = graph.op("Div", norm, graph.op("Mul", divisor, graph.constant(FULL)))
    sums = graph.op("MatMul", values, graph.constant(as_array(words.weight)))
    decisions = graph.op("Div", sums, divisor)
    decisions = graph.op("Add", decisions, graph.constant(as_array(words.bias)))
    return decisions, graph.op("Min", share, one)


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
