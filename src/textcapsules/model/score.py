"""Score documents with a system: batched by length, returned in the given order.

Many texts are scored on a GPU by captured graphs (`captured`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.captured import captured_scores, suits
from textcapsules.model.network import Network
from textcapsules.model.routing import expect_texts
from textcapsules.text.batch import epoch_batches, make_batch
from textcapsules.text.encode import drop_unreadable

__all__ = ["drop_unreadable", "dry_scores", "highest", "past", "score_documents"]

CLIP = 1e-4  # minimum distance of a score from 0 and 1 before its odds are taken
CPU_TEXTS, GPU_TEXTS = 64, 512  # scored together
GPU_TOKENS = 1 << 16  # at most, padding included


def score_documents(
    network: Network | ClassicSystem,
    documents: Sequence[NDArray],
    *,
    batch_size: int | None = None,
) -> NDArray[np.float32]:
    """Return every class's score (N, n_classes): the length of its capsule, if any.

    The orphan is left out. An empty document scores zero everywhere, even if padding or
    the biases of the network would give it a score.
    """
    lengths = np.fromiter(map(len, documents), np.int64, len(documents))
    if isinstance(network, ClassicSystem):
        scores = network.scores(documents)
    else:
        scores = score_batches(network, documents, lengths, batch_size)
    scores[lengths == 0] = 0
    return scores


@torch.inference_mode()
def score_batches(
    network: Network,
    documents: Sequence[NDArray],
    lengths: NDArray,
    batch_size: int | None,
) -> NDArray[np.float32]:
    """Score with a network, some documents at a time."""
    was_training, device = network.training, next(network.parameters()).device
    network.eval()
    if batch_size is None and suits(network, lengths):
        scores = captured_scores(network).scores(network, documents, lengths)
        network.train(was_training)
        return scores
    scores = np.zeros((len(documents), network.n_classes), dtype=np.float32)
    nothing = np.zeros((len(documents), 0), dtype=np.float32)  # no targets to carry
    batches = plain_batches(lengths, batch_size, device)
    with expect_texts(len(documents)):
        for rows in batches:
            batch = make_batch(documents, nothing, rows).to(device)
            scores[rows] = network.score(batch.ids, batch.mask).float().cpu().numpy()
    network.train(was_training)
    return scores


def plain_batches(
    lengths: NDArray, batch_size: int | None, device: torch.device
) -> list[NDArray]:
    """Return the rows of each batch: few large ones on a GPU, where launches cost.

    Long texts come in smaller batches, which all fit beside other processes' memory.
    """
    if batch_size is None and device.type == "cuda":
        longest = int(lengths.max(initial=1))  # 1 where there is no text
        batch_size = max(1, min(GPU_TEXTS, GPU_TOKENS // longest))
    elif batch_size is None:
        batch_size = CPU_TEXTS
    return epoch_batches(lengths, batch_size, seed=0, epoch=0, shuffle=False)


@torch.inference_mode()
def dry_scores(network: Network, documents: Sequence[NDArray]) -> None:
    """Run the network on batches as of `score_documents`, for what they ask for.

    The scores are dropped, and the network is left in evaluation.
    """
    network.eval()
    lengths = np.fromiter(map(len, documents), np.int64, len(documents))
    if not len(documents):
        return
    device = next(network.parameters()).device
    if suits(network, lengths):
        kept = captured_scores(network)
        kept.look_at(network, documents[0].shape[1:])
        kept.dry_run(network, np.sort(lengths))
        return
    nothing = np.zeros((len(documents), 0), dtype=np.float32)
    batches = plain_batches(lengths, None, device)
    for rows in batches[:: max(1, len(batches) - 1)]:  # the shortest and the longest
        batch = make_batch(documents, nothing, rows).to(device)
        network.score(batch.ids, batch.mask)


def past(
    scores: NDArray,
    thresholds: Sequence[float] | NDArray | float,
    *,
    at_least_one: bool = False,
) -> NDArray[np.bool_]:
    """Return which scores (N, J) reach their thresholds; none if no score is above 0.

    Args:
        scores: (N, J).
        thresholds: one per class, or one for all.
        at_least_one: where none reaches its threshold, the one that comes nearest to it
            counts: whose odds are the largest part of its threshold's odds.

    >>> scores = np.array([[0.6, 0.2], [0.3, 0.2], [0.0, 0.0]])
    >>> past(scores, [0.5, 0.25]).tolist()
    [[True, False], [False, False], [False, False]]
    >>> past(scores, [0.5, 0.25], at_least_one=True).tolist()
    [[True, False], [False, True], [False, False]]
    """
    limits = np.asarray(thresholds, dtype=scores.dtype)
    has_score = (scores > 0).any(1, keepdims=True)
    is_past = (scores >= limits) & has_score
    if at_least_one:
        s, t = (np.clip(np.float64(each), CLIP, 1 - CLIP) for each in (scores, limits))
        odds = s / (1 - s) * (1 - t) / t
        nearest = np.arange(scores.shape[1]) == odds.argmax(1)[:, None]
        is_past |= nearest & has_score & ~is_past.any(1, keepdims=True)
    return is_past


def highest(scores: NDArray) -> NDArray:
    """Return the class of the highest score, -1 where no score is above zero."""
    return np.where((scores > 0).any(1), scores.argmax(1), -1)
