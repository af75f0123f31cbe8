"""Contributions of words: what each word adds to a class, through all layers.

`couplings.contributions` says what a capsule adds to the length of a class. A capsule
reads several words, and which of them made it speak, its couplings cannot tell. But
below the capsules everything is a sum too. With the gain g_i of its squash, a capsule
is u_i = g_i (L F_p + β), the features F_p of its n-gram being those of the sums

    z_p = Σ_k W_k x_p+k + b       over the words x of the n-gram, place by place

that the ReLU lets through. Put in for u_i, what the capsule adds becomes one term per
word, and one for the biases, exact for the gains, gates and couplings that the text
led to; nothing is differentiated and nothing is deleted. The biases' term is shared
evenly among the n-gram's words, so the words' contributions add up to the score where
those of the capsules do. A word has the sum over all n-grams that hold it.

In a network of peaks each feature is that of the one n-gram at which it is strongest:
the same terms go to that n-gram's words.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, einsum
from torch.linalg import vector_norm

from textcapsules.model.capsnet import (
    BranchRouting,
    CapsuleNetwork,
    CapsuleOutput,
    NgramBranch,
)
from textcapsules.reasons.couplings import (
    Pull,
    branch_contributions,
    branches_of,
    by_ngram,
    class_pulls,
    ratio,
)

__all__ = ["word_contributions"]


@torch.no_grad()
def word_contributions(
    network: CapsuleNetwork,
    output: CapsuleOutput,
    vectors: Tensor,
    mask: Tensor,
    classes: Sequence[int] | None = None,
) -> Tensor:
    """Return what every word adds to every class, (B, T, E).

    Args:
        network: capsules, in evaluation mode.
        output: of a batch, inspected.
        vectors: the word vectors that it read, (B, T, V), longer where padding votes.
        mask: where there are words, (B, T).
        classes: the columns E; all, the orphan last, if None.
    """
    pulls = class_pulls(network, output)
    T = mask.shape[1]
    total = None
    for branch, routing, pull in zip(
        branches_of(network), output.branches, pulls, strict=True
    ):
        given = branch_contributions(branch, routing, pull)  # (B, P, E)
        columns = list(range(given.shape[2])) if classes is None else list(classes)
        given = given[..., columns]
        words = branch_words(branch, routing, pull, vectors, mask, columns)
        if routing.peaks is not None:
            said = words.sum(2)  # (B, P, E)
            given = said + by_ngram(routing, given - said.sum(1, keepdim=True))
        words = share_rest(branch, words, given, mask)
        total = words if total is None else total + words
    assert total is not None
    return total[:, :T] * mask.unsqueeze(2)


def branch_words(
    branch: NgramBranch,
    routing: BranchRouting,
    pull: Pull,
    vectors: Tensor,
    mask: Tensor,
    columns: list[int],
) -> Tensor:
    """Return what each word of each n-gram adds, without biases, (B, P, K, E)."""
    kernel, bias = branch.ngrams.kernel()  # (F, V, K)
    if vectors.shape[1] > mask.shape[1]:  # padding votes
        mask = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)
    vectors, _ = branch.window(vectors, mask)
    peaks, stride, K = routing.peaks, branch.ngrams.stride, kernel.shape[2]
    P = routing.capsules.shape[1] if peaks is None else peaks.n_positions
    reach = (P - 1) * stride + 1
    parts = [  # W_k x, (B, P, F) for each place k in the n-gram
        vectors[:, k : k + reach : stride] @ kernel[..., k].mT for k in range(K)
    ]
    if peaks is not None:
        parts = [part.gather(1, peaks.places.unsqueeze(1)) for part in parts]
    features = torch.stack(parts).sum(0) + bias  # before the ReLU
    gates = features > 0
    primary = branch.primary
    poses = primary.linear(features * gates).unflatten(-1, primary.shape)
    gains = ratio(vector_norm(routing.capsules, dim=-1), vector_norm(poses, dim=-1))
    through = features_pull(branch, routing, pull, gains, columns)  # (B, P, E, F)
    through = through * gates.unsqueeze(2)
    if peaks is None:
        return torch.stack([(through @ p.unsqueeze(3)).squeeze(3) for p in parts], 2)
    given = torch.stack([(through * p.unsqueeze(2)).squeeze(1).mT for p in parts], 2)
    words = given.new_zeros(len(given), P, *given.shape[2:])  # of (B, F, K, E)
    return words.scatter_add_(1, peaks.places[..., None, None].expand_as(given), given)


def features_pull(
    branch: NgramBranch,
    routing: BranchRouting,
    pull: Pull,
    gains: Tensor,
    columns: list[int],
) -> Tensor:
    """Return how the features of every n-gram move the classes, (B, P, E, F)."""
    C, D = branch.primary.shape
    weight = branch.primary.linear.weight.unflatten(0, (C, D))  # (C, D, F)
    if branch.conv is None and pull.towards.ndim == 3:
        towards = einsum("bde,cdf->becf", pull.towards[..., columns], weight)
        coupled = pull.coupled[..., columns].unflatten(1, (-1, C))  # (B, P, C, E)
        scaled = (coupled * gains.unsqueeze(3)).permute(0, 3, 1, 2)  # (B, E, P, C)
        return (scaled @ towards).transpose(1, 2)
    # Other networks: what is linear in the capsules has a constant derivative.
    with torch.enable_grad():
        capsules = routing.capsules.detach().clone().requires_grad_()
        given = branch_contributions(branch, routing._replace(capsules=capsules), pull)
        slopes = [
            torch.autograd.grad(given[..., column].sum(), capsules, retain_graph=True)[
                0
            ]
            for column in columns
        ]  # (B, P, C, D) each
    slopes = torch.stack(slopes, 2) * gains[:, :, None, :, None]
    return slopes.flatten(3) @ weight.flatten(0, 1)


def share_rest(
    branch: NgramBranch, words: Tensor, given: Tensor, mask: Tensor
) -> Tensor:
    """Add up words over their n-grams, with an even share of what biases add.

    Args:
        branch: the n-gram network.
        words: what each word of each n-gram adds, (B, P, K, E).
        given: what each n-gram adds in all, (B, P, E).
        mask: where there are words, (B, T).

    Returns:
        (B, T, E).
    """
    (B, P, K, E), stride, T = words.shape, branch.ngrams.stride, mask.shape[1]
    n_tokens = mask.sum(1)[:, None, None]  # (B, 1, 1)
    places = torch.arange(P, device=mask.device)[:, None] * stride - branch.edge
    places = places + torch.arange(K, device=mask.device)  # (P, K), the token's
    inside = (places >= 0) & (places < n_tokens)  # (B, P, K)
    rest = given - (words * inside.unsqueeze(3)).sum(2)  # (B, P, E)
    share = rest / inside.sum(2, keepdim=True).clamp(min=1)
    filled = (words + share.unsqueeze(2)) * inside.unsqueeze(3)
    total = words.new_zeros(B, T + 1, E)  # the last for places outside the text
    index = torch.where(inside, places, T).flatten(1)  # (B, P·K)
    total.scatter_add_(1, index.unsqueeze(2).expand(-1, -1, E), filled.flatten(1, 2))
    return total[:, :T]
