"""The very deep CNN against the published table: layers, weights, lengths."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.baselines.convolutional import DEPTHS, VdCnn, k_max

PUBLISHED_MILLIONS = {9: 2.2, 17: 4.3, 29: 4.6}  # Conneau et al., table 2
N_CHARACTERS = 69


def make(depth: int = 9, length: int = 64) -> VdCnn:
    torch.manual_seed(0)
    network = VdCnn(n_characters=N_CHARACTERS, n_classes=3, length=length, depth=depth)
    return network.eval()


def layers(network: VdCnn, kind: type) -> list[nn.Module]:
    return [layer for layer in network.convolutions if isinstance(layer, kind)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_depth_counts_the_convolutions(depth: int) -> None:
    with torch.device("meta"):
        network = make(depth)
    assert len(layers(network, nn.Conv2d)) == depth
    assert len(layers(network, nn.BatchNorm2d)) == depth - 1  # none after the first
    assert len(layers(network, nn.MaxPool2d)) == 3


def test_published_differences_of_the_depths_come_out() -> None:
    # The published counts include what the text does not tell; from depth to depth
    # only convolutions are added.
    millions = {}
    for depth in DEPTHS:
        with torch.device("meta"):
            network = make(depth)
        millions[depth] = sum(p.numel() for p in network.parameters()) / 1e6
    for one, other in ((9, 17), (17, 29)):
        published = PUBLISHED_MILLIONS[other] - PUBLISHED_MILLIONS[one]
        assert millions[other] - millions[one] == pytest.approx(published, abs=0.1)


def test_convolutions_of_depth_nine_by_hand() -> None:
    # 1 of 16 to 64, then pairs: 64-64-64, 64-128-128, 128-256-256, 256-512-512.
    pairs = [(64, 64), (64, 128), (128, 256), (256, 512)]
    expected = 16 * 64 * 3 + 64
    expected += sum(3 * (a * b + b * b) + 4 * b for a, b in pairs)  # and two norms
    assert sum(p.numel() for p in make().convolutions.parameters()) == expected


def test_full_layers_are_the_published_ones() -> None:
    with torch.device("meta"):
        network = make(length=1024)
    sizes = [
        (layer.in_features, layer.out_features)
        for layer in network.full
        if isinstance(layer, nn.Linear)
    ]
    assert sizes == [(4096, 2048), (2048, 2048), (2048, 3)]


def test_stages_halve_the_text() -> None:
    network, lengths = make(length=1024), []
    for layer in layers(network, nn.MaxPool2d):
        layer.register_forward_hook(lambda *given: lengths.append(given[2].shape))
    outputs = []
    network.convolutions.register_forward_hook(lambda *given: outputs.append(given[2]))
    with torch.inference_mode():
        network(torch.ones(1, 5, dtype=torch.long), torch.ones(1, 5) > 0)
    assert [tuple(shape[1:]) for shape in lengths] == [
        (64, 1, 512),
        (128, 1, 256),
        (256, 1, 128),
    ]
    assert outputs[0].shape == (1, 512, 1, 128)


def test_an_image_one_pixel_high_is_the_text() -> None:
    """Layer by layer in one dimension, and features innermost to the end."""
    network = make().train()
    ids, mask = batch([[5, 6, 7] * 20, [8, 9] * 10])
    outputs: list[Tensor] = []
    network.convolutions.register_forward_hook(lambda *given: outputs.append(given[2]))
    network(ids, mask)
    ids = F.pad(ids, (0, network.length - ids.shape[1]))
    text = network.embedding(ids).transpose(1, 2)
    for layer in network.convolutions:
        if isinstance(layer, nn.Conv2d):
            text = F.conv1d(text, layer.weight.squeeze(2), layer.bias, padding=1)
        elif isinstance(layer, nn.BatchNorm2d):
            text = F.batch_norm(text, None, None, layer.weight, layer.bias, True)
        elif isinstance(layer, nn.ReLU):
            text = text.relu()
        else:
            text = F.max_pool1d(text, 3, stride=2, padding=1)
    torch.testing.assert_close(outputs[0].squeeze(2), text, rtol=1e-3, atol=1e-4)
    assert outputs[0].is_contiguous(memory_format=torch.channels_last)


def test_k_max_keeps_the_largest_in_their_order() -> None:
    features = np.random.default_rng(0).normal(size=(2, 3, 20)).astype(np.float32)
    largest = k_max(torch.from_numpy(features), 8).numpy()
    for row, column in np.ndindex(2, 3):
        values = features[row, column]
        kept = sorted(np.argsort(values)[-8:])
        np.testing.assert_array_equal(largest[row, column], values[kept])


def batch(texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    return ids, ids > 0


def test_neither_batch_nor_its_width_matters_once_trained() -> None:
    network, texts = make(), [[5, 6, 7], [8], [9, 10] * 50]
    network.train()(*batch(texts))  # moves the running averages
    network.eval()
    together = network(*batch(texts)).logits
    for row, text in zip(together, texts, strict=True):
        alone = network(*batch([text])).logits[0]
        torch.testing.assert_close(row, alone, rtol=1e-4, atol=1e-4)


def test_gradients_reach_every_parameter() -> None:
    network = make().train()
    network(*batch([[5, 6, 7] * 20, [8, 9] * 10])).logits.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
