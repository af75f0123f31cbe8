"""Losses against values computed by hand, and torch's own cross-entropy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from textcapsules.config import LossConfig, ModelConfig
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleOutput
from textcapsules.model.network import ClassOutput
from textcapsules.training.losses import (
    binary_cross_entropy,
    cross_entropy,
    entropy_loss,
    margin_loss,
    network_loss,
    output_loss,
    spread_loss,
    spread_margin,
)

# Two texts, three classes: one label, then two.
LENGTHS = torch.tensor([[0.6, 0.3, 0.05], [0.95, 0.4, 0.8]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)


def test_margin_loss_is_the_sum_worked_out_by_hand() -> None:
    # Text 1: (0.9-0.6)^2 + 0.5*(0.3-0.1)^2 + 0 = 0.09 + 0.02
    # Text 2: 0 + 0.5*(0.4-0.1)^2 + (0.9-0.8)^2 = 0.045 + 0.01
    loss = margin_loss(LENGTHS, TARGETS)
    assert loss.item() == pytest.approx((0.11 + 0.055) / 2, abs=1e-12)


def test_margin_loss_takes_its_margins_and_weight() -> None:
    loss = margin_loss(LENGTHS, TARGETS, m_plus=0.7, m_minus=0.2, down_weight=0.25)
    # Text 1: 0.1^2 + 0.25*0.1^2 = 0.0125; text 2: 0.25*0.2^2 = 0.01
    assert loss.item() == pytest.approx((0.0125 + 0.01) / 2, abs=1e-12)


def test_margin_loss_is_exactly_zero_inside_the_margins() -> None:
    lengths = torch.tensor([[0.9, 0.1, 0.0], [0.95, 0.05, 1.0]], requires_grad=True)
    loss = margin_loss(lengths, TARGETS.float())
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, lengths)
    assert (gradient == 0).all()


def test_spread_loss_sums_over_pairs_of_true_and_other_classes() -> None:
    # Margin 0.5. Text 1: gaps 0.3 and 0.55 -> 0.2^2 + 0. Text 2, the one other class
    # against both true ones: gaps 0.55 and 0.4 -> 0 + 0.1^2.
    loss = spread_loss(LENGTHS, TARGETS, margin=0.5)
    assert loss.item() == pytest.approx((0.04 + 0.01) / 2, abs=1e-12)


def test_spread_loss_is_zero_once_every_gap_is_wide_enough() -> None:
    assert spread_loss(LENGTHS, TARGETS, margin=0.3).item() == pytest.approx(
        0, abs=1e-30
    )


def test_cross_entropy_of_single_labels_is_torchs() -> None:
    lengths = torch.rand(5, 4, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1, 1, 2])
    targets = F.one_hot(labels, 4).double()
    torch.testing.assert_close(
        cross_entropy(lengths, targets), F.cross_entropy(lengths, labels)
    )


def test_cross_entropy_lets_several_labels_weigh_alike() -> None:
    lengths = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    targets = torch.tensor([[0.0, 1.0, 1.0]], dtype=torch.float64)
    # Softmax: 1/8, 2/8, 5/8.
    by_hand = -(math.log(2 / 8) + math.log(5 / 8)) / 2
    assert cross_entropy(lengths, targets).item() == pytest.approx(by_hand, abs=1e-12)


def test_spread_margin_rises_in_equal_steps_and_stays() -> None:
    config = LossConfig(spread_start=0.1, spread_end=0.5, spread_epochs=4)
    margins = [spread_margin(config, epoch) for epoch in range(7)]
    assert margins == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5])


ORPHAN = torch.tensor([[0.5], [0.0]], dtype=torch.float64)


def test_orphan_in_the_margin_loss_counts_as_a_class_never_present() -> None:
    config = LossConfig()
    without = network_loss(config, LENGTHS, TARGETS)
    with_orphan = network_loss(config, torch.cat([LENGTHS, ORPHAN], 1), TARGETS)
    # Text 1 adds 0.5*(0.5-0.1)^2 = 0.08, text 2 nothing.
    assert (with_orphan - without).item() == pytest.approx(0.08 / 2, abs=1e-12)


def test_orphan_in_the_spread_loss_is_one_more_other_class() -> None:
    config = LossConfig(loss="spread", spread_start=0.5, spread_end=0.5)
    without = network_loss(config, LENGTHS, TARGETS)
    with_orphan = network_loss(config, torch.cat([LENGTHS, ORPHAN], 1), TARGETS)
    # Text 1: gap 0.6-0.5 -> 0.4^2; text 2: gaps 0.95 and 0.8 -> 0.
    assert (with_orphan - without).item() == pytest.approx(0.16 / 2, abs=1e-12)


def test_orphan_in_the_cross_entropy_is_one_more_wrong_logit() -> None:
    lengths = torch.cat([LENGTHS, ORPHAN], 1)[:1]
    loss = network_loss(LossConfig(loss="cross-entropy"), lengths, TARGETS[:1])
    torch.testing.assert_close(loss, F.cross_entropy(lengths, torch.tensor([0])))


def test_network_loss_passes_every_option_on() -> None:
    options: dict[str, Any] = {"m_plus": 0.7, "m_minus": 0.2, "down_weight": 0.25}
    torch.testing.assert_close(
        network_loss(LossConfig(**options), LENGTHS, TARGETS),
        margin_loss(LENGTHS, TARGETS, **options),
    )
    spread = LossConfig(
        loss="spread", spread_start=0.2, spread_end=0.8, spread_epochs=2
    )
    for epoch, margin in enumerate((0.2, 0.5, 0.8, 0.8)):
        torch.testing.assert_close(
            network_loss(spread, LENGTHS, TARGETS, epoch),
            spread_loss(LENGTHS, TARGETS, margin=margin),
        )


KINDS = ["margin", "spread", "cross-entropy", "binary-cross-entropy", "entropy"]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_finite_differences(kind: str) -> None:
    config = LossConfig(loss=kind, absent_weight=0.3)  # type: ignore[arg-type]
    lengths = torch.cat([LENGTHS, ORPHAN + 0.2], 1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda given: network_loss(config, given, TARGETS, epoch=3), (lengths,)
    )
    assert torch.autograd.gradcheck(
        lambda given: output_loss(config, CapsuleOutput(given, None, ()), TARGETS, 3),
        (LENGTHS.clone().requires_grad_(),),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_the_mean_over_the_batch(kind: str) -> None:
    config = LossConfig(loss=kind)  # type: ignore[arg-type]
    both = network_loss(config, LENGTHS, TARGETS)
    each = [
        network_loss(config, LENGTHS[row : row + 1], TARGETS[row : row + 1])
        for row in range(2)
    ]
    torch.testing.assert_close(both, torch.stack(each).mean())


def test_binary_cross_entropy_by_hand() -> None:
    logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    expected = -math.log(0.5) - math.log(1 - 1 / (1 + math.exp(-2)))
    assert float(binary_cross_entropy(logits, targets)) == pytest.approx(expected)


OUTPUT = ClassOutput(torch.tensor([[1.0, -1.0], [0.5, 0.0]]))
LABELS = torch.tensor([[1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("loss", "asked"),
    [
        ("margin", OUTPUT.scores),
        ("spread", OUTPUT.scores),
        ("cross-entropy", OUTPUT.logits),
        ("binary-cross-entropy", OUTPUT.logits),
    ],
)
def test_baselines_give_logits_or_probabilities_as_the_loss_asks(loss, asked) -> None:
    config = LossConfig(loss=loss)
    expected = network_loss(config, asked, LABELS)
    assert float(output_loss(config, OUTPUT, LABELS)) == pytest.approx(float(expected))
    fined = OUTPUT._replace(penalty=torch.tensor(0.25))
    found = float(output_loss(config, fined, LABELS))
    assert found == pytest.approx(float(expected) + 0.25)


@pytest.mark.parametrize("orphan_in_loss", [True, False])
def test_capsules_give_lengths_and_the_orphan_if_asked(orphan_in_loss: bool) -> None:
    output = CapsuleOutput(torch.tensor([[0.7, 0.3]]), torch.tensor([0.6]), ())
    config = LossConfig(loss="margin", orphan_in_loss=orphan_in_loss)
    # max(0, 0.9 - 0.7)^2 + 0.5 max(0, 0.3 - 0.1)^2, and 0.5 max(0, 0.6 - 0.1)^2
    expected = 0.04 + 0.02 + (0.125 if orphan_in_loss else 0.0)
    found = float(output_loss(config, output, torch.tensor([[1.0, 0.0]])))
    assert found == pytest.approx(expected)


# A text with one known label, a joined one with two; chances from nearly 0 to nearly 1.
CHANCES = np.array([[0.7, 0.02, 0.5, 0.999], [0.3, 0.6, 0.0004, 0.9]])
KNOWN = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]])


def by_hand(kind: str, weight: float, edge: float = 0.0) -> float:
    """Loop over texts and classes: binary cross-entropy, or entropy maximised."""
    total = 0.0
    for chances, known in zip(CHANCES, KNOWN, strict=True):
        for chance, is_known in zip(chances, known, strict=True):
            p = min(max(float(chance), edge), 1 - edge)
            if is_known:
                total -= math.log(p)
            elif kind == "entropy":
                total += weight * (p * math.log(p) + (1 - p) * math.log(1 - p))
            else:
                total -= weight * math.log(1 - p)
    return total / len(CHANCES)


@pytest.mark.parametrize("weight", [1.0, 1 / 3, 0.0])
def test_absent_labels_weigh_as_asked(weight: float) -> None:
    logits = torch.tensor(np.log(CHANCES / (1 - CHANCES)))
    found = binary_cross_entropy(logits, torch.tensor(KNOWN), absent_weight=weight)
    assert float(found) == pytest.approx(by_hand("binary-cross-entropy", weight))
    config = LossConfig(down_weight=0.4, absent_weight=weight)
    # Text 1: (0.9-0.6)^2 and 0.4*(0.3-0.1)^2; text 2: (0.9-0.8)^2, 0.4*(0.4-0.1)^2
    expected = (0.09 + 0.01 + weight * (0.016 + 0.036)) / 2
    found = network_loss(config, LENGTHS, TARGETS)
    assert float(found) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weight", [0.1, 2.0, 0.0])
def test_entropy_loss_is_the_formula(weight: float) -> None:
    logits = torch.tensor(np.log(CHANCES / (1 - CHANCES)))
    found = entropy_loss(logits, torch.tensor(KNOWN), weight=weight)
    assert float(found) == pytest.approx(by_hand("entropy", weight), rel=1e-9)


def test_entropy_loss_holds_unknown_classes_at_undecided() -> None:
    logits = torch.tensor([[-3.0, 2.0, 0.0, -0.5]], requires_grad=True)
    entropy_loss(logits, torch.tensor([[1.0, 0, 0, 0]]), weight=0.1).backward()
    assert logits.grad is not None
    # What a step against the gradient does: up to the known, the others towards 0.
    assert logits.grad.sign().tolist() == [[-1, 1, 0, -1]]


def test_logits_of_any_size_have_a_finite_entropy() -> None:
    logits = torch.tensor([[1e4, -1e4, 1e4, -1e4]], requires_grad=True)
    loss = entropy_loss(logits, torch.tensor([[1.0, 1.0, 0, 0]]), weight=0.1)
    loss.backward()
    assert loss.item() == pytest.approx(1e4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["binary-cross-entropy", "entropy"])
def test_lengths_of_capsules_are_read_as_probabilities(kind: Any) -> None:
    config = LossConfig(loss=kind, absent_weight=0.3, entropy_weight=0.3)
    output = CapsuleOutput(torch.tensor(CHANCES), None, ())
    found = output_loss(config, output, torch.tensor(KNOWN))
    assert float(found) == pytest.approx(by_hand(kind, 0.3), rel=1e-6)


@pytest.mark.parametrize("kind", ["binary-cross-entropy", "entropy"])
def test_lengths_of_nothing_and_of_one_have_a_finite_loss(kind: Any) -> None:
    lengths = torch.tensor([[0.0, 1.0, 0.0, 1.0]], requires_grad=True)
    output = CapsuleOutput(lengths, None, ())
    known = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    config = LossConfig(loss=kind, entropy_weight=0.0)
    loss = output_loss(config, output, known)
    loss.backward()
    wrong = 1 if kind == "entropy" else 2  # the known one at 0; the absent one at 1
    assert loss.item() == pytest.approx(-wrong * math.log(1e-6), rel=1e-2)
    assert lengths.grad is not None
    assert lengths.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["binary-cross-entropy", "entropy"])
def test_orphan_is_known_to_be_absent(kind: Any) -> None:
    output = CapsuleOutput(LENGTHS, torch.tensor([0.25, 0.5]).double(), ())
    without = output_loss(LossConfig(loss=kind), output, TARGETS)
    config = LossConfig(loss=kind, orphan_in_loss=True)
    extra = float(output_loss(config, output, TARGETS) - without)
    assert extra == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_capsules_with_logits_give_them_where_a_baseline_does(kind: Any) -> None:
    config = LossConfig(loss=kind)
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]], dtype=torch.float64)
    output = CapsuleOutput(LENGTHS, None, (), logits)
    asked = logits if kind.endswith("entropy") else LENGTHS
    found = output_loss(config, output, TARGETS)
    torch.testing.assert_close(found, network_loss(config, asked, TARGETS))


@pytest.mark.parametrize("kind", ["margin", "binary-cross-entropy"])
@pytest.mark.parametrize("routing", ["dynamic", "attention"])
def test_a_loss_per_branch_is_the_mean_of_those_of_each_network(kind, routing):
    model = ModelConfig(
        embedding_size=4,
        filters=3,
        capsule_types=2,
        capsule_size=4,
        conv_capsules=False,
        peaks=True,
        ngram_sizes=(2,),
        routing=routing,
    )
    torch.manual_seed(0)
    network = build_network(model, n_words=9, n_classes=3, max_tokens=6).double()
    ids = torch.tensor([[2, 3, 4, 5, 6], [7, 8, 3, 0, 0]])
    together = network.train()(ids, ids > 0)
    config = LossConfig(loss=kind, per_branch=True)
    found = output_loss(config, together, TARGETS)
    branches, losses = list(network.branches), []
    for branch in branches:
        network.branches = torch.nn.ModuleList([branch])
        losses.append(
            output_loss(LossConfig(loss=kind), network(ids, ids > 0), TARGETS)
        )
    torch.testing.assert_close(found, torch.stack(losses).mean())
    one = output_loss(LossConfig(loss=kind), together, TARGETS)
    assert not torch.allclose(found, one)


KINDS_OF_LENGTHS = ("margin", "spread", "binary-cross-entropy", "entropy")
