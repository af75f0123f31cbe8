"""N-grams of several sizes side by side, against a plain loop over positions."""

import pytest
import torch

from textcapsules.model.layers import JointNgrams, NgramConv, PrimaryCapsules


def joint(sizes: tuple[int, ...], stride: int) -> JointNgrams:
    layer = JointNgrams(3, 2, sizes, stride=stride)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer.double()


@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 2), (5, 2), (2, 2), (3,)])
@pytest.mark.parametrize("stride", [1, 2])
@torch.no_grad()
def test_every_position_has_the_features_of_all_sizes(sizes, stride) -> None:
    layer, longest = joint(sizes, stride), max(sizes)
    vectors = torch.randn(2, 9, 3, dtype=torch.float64)
    mask = torch.arange(9) < torch.tensor([[9], [7]])
    features, inside = layer(vectors, mask)
    positions = range(0, 9 - longest + 1, stride)
    assert features.shape == (2, len(positions), 2 * len(sizes))
    for row in range(2):
        for place, first in enumerate(positions):
            assert inside[row, place] == (first + longest <= [9, 7][row])
            by_hand = []
            for part, size in zip(layer.parts, sizes, strict=True):
                assert isinstance(part, NgramConv)
                begin = first + (longest - size) // 2
                window = vectors[row, begin : begin + size]  # (size, V)
                for f in range(2):
                    total = (part.conv.weight[f].T * window).sum()
                    by_hand.append(torch.relu(total + part.conv.bias[f]))  # type: ignore[index]
            torch.testing.assert_close(features[row, place], torch.stack(by_hand))


@torch.no_grad()
def test_the_kernel_is_one_convolution_of_the_longest_size() -> None:
    layer = joint((2, 5, 3), 1)
    vectors = torch.randn(2, 8, 3, dtype=torch.float64)
    mask = torch.ones(2, 8, dtype=torch.bool)
    whole = torch.nn.functional.conv1d(vectors.mT, *layer.kernel()).relu().mT
    torch.testing.assert_close(layer(vectors, mask)[0], whole)


def test_capsules_of_texts_are_those_of_their_positions() -> None:
    layer = PrimaryCapsules(6, out_size=4, n_out=3).double()
    torch.nn.init.normal_(layer.linear.bias)
    features = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    capsules = layer(features)
    one_by_one = layer(features.flatten(0, 1)).unflatten(0, (2, 5))
    torch.testing.assert_close(capsules, one_by_one)
    learnt = (features, *layer.parameters())
    weights = torch.randn_like(capsules)
    slopes = torch.autograd.grad((capsules * weights).sum(), learnt)
    expected = torch.autograd.grad((one_by_one * weights).sum(), learnt)
    for slope, exact in zip(slopes, expected, strict=True):
        torch.testing.assert_close(slope, exact)
