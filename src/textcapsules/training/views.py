"""Choose how much each view of a text counts: an encoder's states, and word pieces.

Which view is to be trusted depends on the texts. States understand words that no
training text has, pieces tell apart topics that share their sentences. The share of the
states is the one by which the weighted average predicts the labels of dev texts best,
those that the thresholds are chosen on; a slope and an offset, which thresholds make up
for, are fitted for every share.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.model.capsnet import CapsuleNetwork, NgramBranch
from textcapsules.model.network import Network
from textcapsules.model.score import score_documents
from textcapsules.training.calibrate import fit_biases, logit, sigmoid
from textcapsules.training.metrics import log_loss
from textcapsules.training.selection import DevSet

__all__ = ["best_share", "share_views"]

FEW_TEXTS = 30  # with fewer dev texts both views count alike
SHARES = np.linspace(0, 1, 21)


def share_views(network: Network, dev: DevSet) -> dict[str, Any] | None:
    """Set a network's shares by dev texts; return what the record keeps.

    A network of one view has none.
    """
    if not isinstance(network, CapsuleNetwork) or network.shares is None:
        return None
    texts = dev.calibration_texts if dev.gives_several else dev.dev
    branches = [part for part in network.branches if isinstance(part, NgramBranch)]
    # The networks of states read a vector from its first number on.
    of_states = np.array([each.numbers and each.numbers[0] == 0 for each in branches])
    weights = np.stack([part / part.sum() for part in (of_states, ~of_states)])
    share = 0.5
    if len(dev.dev.documents) >= FEW_TEXTS and texts.documents:
        states, pieces = (scores_of(network, w, texts.documents) for w in weights)
        share = best_share(states, pieces, texts.targets)
    set_shares(network, share * weights[0] + (1 - share) * weights[1])
    return {"states": round(share, 4), "pieces": round(1 - share, 4)}


def scores_of(
    network: CapsuleNetwork, shares: NDArray, documents: list[NDArray]
) -> NDArray[np.float32]:
    """Return the scores (N, J) of documents with these shares."""
    set_shares(network, shares)
    return score_documents(network, documents)


def set_shares(network: CapsuleNetwork, shares: NDArray) -> None:
    """Give the n-gram networks these shares of the average."""
    assert network.shares is not None
    network.shares.copy_(network.shares.new_tensor(shares))


def best_share(first: NDArray, second: NDArray, targets: NDArray) -> float:
    """Return the share of the first scores by which an average predicts best.

    Of shares that are equally good, the one nearest to a half is taken.

    >>> truth = np.eye(2)[[0, 1] * 20]
    >>> best_share(0.8 * truth + 0.1, np.full((40, 2), 0.5), truth) > 0.5
    True

    Args:
        first: (N, J), the scores of one view.
        second: (N, J), those of the other.
        targets: (N, J).
    """
    truth = targets.astype(np.float64).reshape(-1, 1)
    losses = []
    for share in SHARES:
        logits = logit(share * first + (1 - share) * second).reshape(-1, 1)
        slope, offset = fit_biases(logits, truth, 0.0)
        p = sigmoid(slope * logits + offset)
        losses.append(log_loss(p, truth, several=True))
    order = np.lexsort((np.abs(SHARES - 0.5), np.round(losses, 6)))
    return float(SHARES[order[0]])
