"""What baselines return: probabilities of one class among all, or of each alone."""

import pytest
import torch

from textcapsules.model.network import ClassOutput

LOGITS = torch.tensor([[0.0, 0.0], [1.0, -1.0]])


def test_one_label_shares_the_probability() -> None:
    e = 2.718281828
    expected = torch.tensor([[0.5, 0.5], [e / (e + 1 / e), 1 / e / (e + 1 / e)]])
    torch.testing.assert_close(ClassOutput(LOGITS).scores, expected)


def test_several_labels_have_a_probability_each() -> None:
    e = 2.718281828
    expected = torch.tensor([[0.5, 0.5], [1 / (1 + 1 / e), 1 / (1 + e)]])
    torch.testing.assert_close(ClassOutput(LOGITS, several=True).scores, expected)


@pytest.mark.parametrize("orphan", [True, False])
def test_the_loss_reads_logits_and_there_is_no_orphan(orphan: bool) -> None:
    assert ClassOutput(LOGITS).lengths(orphan=orphan) is LOGITS
