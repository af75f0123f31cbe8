import pytest
import torch

from random_models import random_network
from textcapsules.reasons.attributions import (
    faded_words,
    gradient_times_input,
    integrated_gradients,
)

OPTIONS = {
    "three-layers": {},
    "two-layers": {"conv_capsules": False},
    "padding-votes": {"mask_padding": False},
}
options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def two_texts() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.arange(8) < torch.tensor([[8], [5]])
    return torch.randint(2, 20, mask.shape) * mask, mask


@options
def test_gradient_is_the_slope_of_a_fading_word(options):
    network = random_network(**options)
    ids, mask = two_texts()
    found = gradient_times_input(network, ids, mask, [0, 2])  # (B, T, 2)
    assert found.shape == (2, 8, 2)
    step = 1e-5
    for token in range(8):

        def lengths(change: float, token: int = token) -> torch.Tensor:
            def fade(_module, _inputs, vectors):
                vectors = vectors.clone()
                vectors[:, token] *= 1 + change
                return vectors

            hook = network.embedding.register_forward_hook(fade)
            with torch.no_grad():
                scores = network(ids, mask).scores[:, [0, 2]]
            hook.remove()
            return scores

        slope = (lengths(step) - lengths(-step)) / (2 * step) * mask[:, [token]]
        torch.testing.assert_close(
            found[:, token].double(), slope, atol=1e-5, rtol=1e-4
        )


@pytest.mark.slow
def test_integrated_gradients_add_up_to_the_rise_from_zero_vectors():
    network = random_network()
    ids, mask = two_texts()
    found = integrated_gradients(network, ids, mask, [0, 1, 2, 3], steps=100)
    with faded_words(network.embedding, 0.0), torch.no_grad():
        start = network(ids, mask).lengths(orphan=True)
    with torch.no_grad():
        rise = network(ids, mask).lengths(orphan=True) - start
    torch.testing.assert_close(found.sum(1).double(), rise, atol=5e-3, rtol=0)
    assert not found[1, 5:].any()  # padding


def test_weights_get_no_gradient_and_no_hook_stays():
    network = random_network()
    gradient_times_input(network, *two_texts(), [0])
    assert all(weight.grad is None for weight in network.parameters())
    assert not network.embedding._forward_hooks
