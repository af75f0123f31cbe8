"""Vectors of word pieces: which pieces have one, and what stays zero."""

import numpy as np
import pytest
import torch

from textcapsules.text.piece_vectors import PieceVectors, known_pieces
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.text.vocabulary import PAD_ID, UNK_ID

N_PIECES = 6
TEXTS = [[0, 2, 5], [2, 2, 3]]  # pieces 1 and 4 are in no text


def documents(*, begins: bool) -> list[np.ndarray]:
    """Return the texts, the first piece of each marked as a sentence's begin."""
    rows = []
    for pieces in TEXTS:
        row = np.array(pieces) + FIRST_PIECE
        row[0] += N_PIECES * begins
        rows.append(np.array([UNK_ID, *row, UNK_ID]))
    return rows


@pytest.fixture
def vectors() -> PieceVectors:
    torch.manual_seed(0)
    return PieceVectors(known_pieces(documents(begins=True), N_PIECES), size=3)


@pytest.mark.parametrize("begins", [False, True])
def test_pieces_of_the_texts_have_a_row_each_wherever_they_stand(begins: bool) -> None:
    rows = known_pieces(documents(begins=begins), N_PIECES)
    assert rows.tolist() == [1, 0, 2, 3, 0, 4]


def test_texts_without_pieces_give_none_a_row() -> None:
    rows = known_pieces([np.array([], int), np.array([UNK_ID])], N_PIECES)
    assert not rows.any()
    empty = PieceVectors(rows, size=3)
    assert not empty(torch.arange(FIRST_PIECE + 2 * N_PIECES)).any()


def test_each_piece_has_its_own_vector_also_at_a_sentences_begin(
    vectors: PieceVectors,
) -> None:
    inside = torch.arange(N_PIECES) + FIRST_PIECE
    found = vectors(torch.stack([inside, inside + N_PIECES]))
    assert torch.equal(found[0], found[1])
    for piece, row in enumerate(vectors.rows.tolist()):
        assert torch.equal(found[0, piece], vectors.vectors.weight[row])
    known = found[0][vectors.rows > 0]
    assert len(torch.unique(known, dim=0)) == len(known) == 4
    assert known.abs().max() <= 0.25


def test_what_has_no_vector_is_zero_and_stays_so(vectors: PieceVectors) -> None:
    without = torch.tensor([[PAD_ID, UNK_ID, FIRST_PIECE + 1, FIRST_PIECE + 4]])
    without = torch.cat([without, without[:, 2:] + N_PIECES], 1)
    with_one = torch.tensor([[FIRST_PIECE, FIRST_PIECE + 2]])
    before = vectors(with_one).detach().clone()
    optimiser = torch.optim.Adam(vectors.parameters(), lr=0.1)
    for _ in range(3):
        assert not vectors(without).any()
        loss = (vectors(torch.cat([without, with_one], 1)) - 1).square().sum()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert not vectors(without).any()
    assert (vectors(with_one) != before).all()


def test_rows_are_kept_with_the_vectors(vectors: PieceVectors) -> None:
    assert set(vectors.state_dict()) == {"rows", "vectors.weight"}
    assert {name for name, _ in vectors.named_parameters()} == {"vectors.weight"}
