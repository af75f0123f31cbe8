"""Batches: padding, masks, and the order of an epoch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textcapsules.text.batch import epoch_batches, make_batch

DOCUMENTS = [np.array(ids, np.int32) for ids in ([5, 6, 7], [], [8], [9, 9])]
TARGETS = np.eye(4, 3)


def test_batch_pads_on_the_right_and_masks():
    batch = make_batch(DOCUMENTS, TARGETS, [2, 0, 1])
    assert batch.ids.tolist() == [[8, 0, 0], [5, 6, 7], [0, 0, 0]]
    assert batch.mask.tolist() == [[True, False, False], [True] * 3, [False] * 3]
    assert batch.targets.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert batch.rows.tolist() == [2, 0, 1]
    kinds = [tensor.dtype for tensor in batch]
    assert kinds == [torch.int64, torch.bool, torch.float32, torch.int64]


@pytest.mark.parametrize("targets", [TARGETS, torch.eye(4, 3)])
def test_empty_texts_alone_have_one_column(targets):
    batch = make_batch(DOCUMENTS, targets, [1])
    assert batch.ids.tolist() == [[0]]
    assert batch.mask.tolist() == [[False]]


def test_no_rows_make_an_empty_batch():
    assert make_batch(DOCUMENTS, TARGETS, []).ids.shape == (0, 1)


def test_pad_to_fixes_the_width_and_cuts():
    assert make_batch(DOCUMENTS, TARGETS, [2], 4).ids.tolist() == [[8, 0, 0, 0]]
    assert make_batch(DOCUMENTS, TARGETS, [0], 2).ids.tolist() == [[5, 6]]
    with pytest.raises(ValueError, match="pad_to must be at least 1; got 0"):
        make_batch(DOCUMENTS, TARGETS, [0], 0)


def test_to_moves_every_tensor():
    moved = make_batch(DOCUMENTS, TARGETS, [0]).to("meta")
    assert {tensor.device.type for tensor in moved} == {"meta"}


lengths = st.lists(st.integers(0, 30), max_size=300)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_every_row_comes_exactly_once(lengths, batch_size, epoch, shuffle):
    batches = epoch_batches(lengths, batch_size, seed=3, epoch=epoch, shuffle=shuffle)
    rows = [row for batch in batches for row in batch.tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    sizes = sorted(map(len, batches), reverse=True)
    assert all(size == batch_size for size in sizes[:-1])  # one batch may be short


def test_order_follows_seed_and_epoch():
    lengths = np.arange(200) % 17

    def order(seed, epoch):
        batches = epoch_batches(lengths, 8, seed=seed, epoch=epoch)
        return np.concatenate(batches).tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    assert order(0, 1) != order(1, 0)


def test_lengths_in_a_batch_are_alike():
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    batches = epoch_batches(lengths, 25, seed=0, epoch=0)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.05 * lengths.sum()  # unsorted batches take about 1.9 times


def test_scoring_order_is_by_length():
    batches = epoch_batches([3, 1, 2, 1], 2, seed=0, epoch=0, shuffle=False)
    assert [batch.tolist() for batch in batches] == [[1, 3], [2, 0]]


def test_batch_size_must_be_positive():
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        epoch_batches([1], 0, seed=0, epoch=0)
