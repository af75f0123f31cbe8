"""Join two texts with one label each into a text with two known labels.

Training texts have one label, yet a new text may deserve several. Joined texts show a
network several labels in training (`--joined`), and on joined dev texts the thresholds
can be chosen, without one text that was annotated with several labels.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.training.prepare import Encoded

__all__ = ["draw_joined", "join_documents", "joined_pairs", "with_joined"]

PAIRED_BY = ("texts", "labels")


def with_joined(
    config: RunConfig, train: Encoded, epoch: int, *, n_pieces: int | None = None
) -> Encoded:
    """Return the training texts and, if asked for, an epoch's draw of joined ones.

    `n_pieces` is as for `join_documents`.
    """
    n_joined = round(config.train.joined * len(train.documents))
    if not n_joined:
        return train
    seed = [config.train.seed, epoch]
    joined, targets = draw_joined(
        config, train, n_joined, seed, [*seed, 1], n_pieces=n_pieces
    )
    return Encoded(
        [*train.documents, *joined], np.concatenate([train.targets, targets])
    )


def draw_joined(
    config: RunConfig,
    singles: Encoded,
    n_joined: int,
    pair_seed: Any,
    cut_seed: Any,
    *,
    n_pieces: int | None = None,
) -> Encoded:
    """Draw pairs of documents as the options say, and join them."""
    pairs = joined_pairs(
        singles.targets, n_joined, pair_seed, by=config.train.joined_by
    )
    joined = join_documents(
        *singles,
        pairs,
        config.text.max_tokens,
        share=config.train.joined_share,
        seed=cut_seed,
        n_pieces=n_pieces,
    )
    return Encoded(*joined)


def joined_pairs(
    targets: NDArray, n_pairs: int, seed: Any, *, by: str = "texts"
) -> NDArray:
    """Draw `n_pairs` pairs of rows (N, 2) that share no label.

    By texts, each row is the first of a pair in turn, and frequent labels are frequent
    among the pairs too. By labels, every label is equally likely in a pair: single
    texts cannot tell which labels real texts have together. A row that shares a label
    with every other row has no partner and is left out.
    """
    if by not in PAIRED_BY:
        raise ValueError(f"by must be {' or '.join(PAIRED_BY)}; got {by!r}.")
    rng = np.random.default_rng(seed)
    targets = targets.astype(bool)
    if by == "labels":
        return label_pairs(targets, n_pairs, rng)
    pairs, n_texts = [], len(targets)
    order: list[int] = []
    without_partner: set[int] = set()
    partners_of: dict[bytes, NDArray] = {}  # by a row's labels: rows that share none
    while len(pairs) < n_pairs and len(without_partner) < n_texts:
        order = order or rng.permutation(n_texts).tolist()
        first = order.pop()
        labels = targets[first].tobytes()
        if labels not in partners_of:
            partners_of[labels] = np.flatnonzero(~(targets & targets[first]).any(1))
        partners = partners_of[labels]
        if not targets[first].any():  # a text without labels shares none with itself
            partners = partners[partners != first]
        if len(partners) == 0:
            without_partner.add(first)
            continue
        pairs.append((first, int(rng.choice(partners))))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def label_pairs(targets: NDArray, n_pairs: int, rng: np.random.Generator) -> NDArray:
    """Draw a label, a row that has it, another label, and a row that has that one.

    The second row shares no label with the first.
    """
    rows_of = [np.flatnonzero(column) for column in targets.T]  # by label
    pairs: list[tuple[int, int]] = []
    # By a first row's labels: per other label, the rows that share none of them.
    partners_of: dict[bytes, list[NDArray]] = {}
    usable = [label for label, rows in enumerate(rows_of) if len(rows)]
    while len(pairs) < n_pairs and usable:
        label = usable[rng.integers(len(usable))]
        first = int(rng.choice(rows_of[label]))
        labels = targets[first].tobytes()
        if labels not in partners_of:
            shares_none = ~(targets & targets[first]).any(1)  # (N,)
            by_label = [rows[shares_none[rows]] for rows in rows_of]
            partners_of[labels] = [rows for rows in by_label if len(rows)]
        partners = partners_of[labels]
        if not partners:
            rows_of[label] = rows_of[label][rows_of[label] != first]
            usable = [label for label, rows in enumerate(rows_of) if len(rows)]
            continue
        pairs.append((first, int(rng.choice(partners[rng.integers(len(partners))]))))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def join_documents(
    documents: Sequence[NDArray],
    targets: NDArray,
    pairs: NDArray,
    max_tokens: int,
    *,
    share: float = 1.0,
    seed: Any = 0,
    n_pieces: int | None = None,
) -> tuple[list[NDArray], NDArray]:
    """Join documents pair by pair, each part cut to half of `max_tokens`.

    Args:
        documents: the token numbers of single texts.
        targets: (N, J), their labels.
        pairs: (P, 2), which of them to join.
        max_tokens: maximum length of a joined document.
        share: minimum share kept of the part that is cut (`cut_one`); 1 cuts nothing.
            Few texts speak of two things at equal length.
        seed: decides what is cut.
        n_pieces: the vocabulary of the encoder whose word pieces the documents hold;
            they are then cut between sentences. Inside of one, a stretch would be
            encoded together with the other text, and anew for every pair.
    """
    half, random = max(max_tokens // 2, 1), np.random.default_rng(seed)
    joined = []
    for pair in pairs:
        parts = [documents[row][:half] for row in pair]
        joined.append(np.concatenate(cut_one(parts, share, random, n_pieces)))
    return joined, np.maximum(targets[pairs[:, 0]], targets[pairs[:, 1]])


def cut_one(
    parts: list[Any],
    share: float,
    random: np.random.Generator,
    n_pieces: int | None = None,
) -> list[Any]:
    """Cut one of two sequences, drawn at random, to a stretch of at least `share`."""
    if share == 1:
        return parts
    which = int(random.integers(2))
    n_all = len(parts[which])
    n_kept = math.ceil(random.uniform(share, 1) * n_all)
    start = int(random.integers(n_all - n_kept + 1))
    end = start + n_kept
    if n_pieces is not None:
        start, end = whole_sentences(parts[which], start, end, n_pieces)
    parts[which] = parts[which][start:end]
    return parts


def whole_sentences(
    rows: NDArray, start: int, end: int, n_pieces: int
) -> tuple[int, int]:
    """Return a stretch of word pieces extended to the sentences that it touches.

    >>> rows = np.array([13, 3, 4, 15, 6])  # of 10 pieces; sentences begin at 13 and 15
    >>> whole_sentences(rows, 1, 2, 10), whole_sentences(rows, 2, 4, 10)
    ((0, 3), (0, 5))
    """
    begins = np.flatnonzero(rows >= FIRST_PIECE + n_pieces)
    before, after = begins[begins <= start], begins[begins >= end]
    return (
        int(before[-1]) if len(before) else 0,
        int(after[0]) if len(after) else len(rows),
    )
