"""Contributions of words against their definition, by derivatives and by loops."""

import pytest
import torch

from random_models import ARCHITECTURES, random_classifier
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.layers import AttentionLayer
from textcapsules.reasons.attributions import faded_words
from textcapsules.reasons.couplings import branches_of, contributions
from textcapsules.reasons.methods import batch_for, capsule_network
from textcapsules.reasons.word_contributions import word_contributions

options = pytest.mark.parametrize("options", ARCHITECTURES.values(), ids=ARCHITECTURES)


def run(network: CapsuleNetwork, batch):
    with torch.no_grad(), faded_words(network.embedding, 1.0) as vectors:
        return network(batch.ids, batch.mask, inspect=True), vectors[0].detach()


@options
def test_they_add_up_to_the_ngrams_in_a_padded_batch(options):
    """So they add up to the score where the n-grams' do, each bias shared evenly."""
    classifier = random_classifier(**options)
    network = capsule_network(classifier)
    documents = classifier.encode(["w1 w2 w3 w4 w5 w6 w7 w8 w9", "w3 w1 w4 w1 w5 w9"])
    batch = batch_for(network, documents, range(2))
    output, vectors = run(network, batch)
    words = word_contributions(network, output, vectors, batch.mask)
    assert words.shape[:2] == batch.mask.shape
    assert not words[~batch.mask].any()
    if network.pad_to is None:
        ngrams = sum(part.sum(1) for part in contributions(network, output))
        torch.testing.assert_close(words.sum(1), ngrams)
    some = word_contributions(network, output, vectors, batch.mask, [2, 0])
    torch.testing.assert_close(some, words[..., [2, 0]])


@pytest.mark.parametrize(
    "name",
    ["two-layers", "three-layers", "attention", "joint-edges", "peaks", "peaks-joint"],
)
def test_without_biases_they_are_derivatives_with_gains_gates_and_couplings_fixed(name):
    """The definition, by automatic differentiation of a network that is then linear."""
    classifier = random_classifier(**{"ngram_sizes": (2, 3), **ARCHITECTURES[name]})
    network = capsule_network(classifier)
    for parameter_name, weight in network.named_parameters():
        if parameter_name.endswith("bias") and "norm" not in parameter_name:
            weight.data.zero_()
    (document,) = classifier.encode(["w1 w2 w3 w4 w5 w6 w7"])
    batch = batch_for(network, [document], [0])
    output, vectors = run(network, batch)
    found = word_contributions(network, output, vectors, batch.mask)[0]  # (T, E)
    expected = torch.zeros_like(found)
    n_classes = network.n_classes
    for column in range(n_classes):
        vectors = vectors.clone().requires_grad_()
        branches = []
        for branch, routing in zip(branches_of(network), output.branches, strict=True):
            edge = vectors.new_zeros(1, branch.edge, vectors.shape[2])
            features, _ = branch.ngrams(torch.cat([edge, vectors, edge], 1))
            if branch.peaks:  # the maximum's derivative is at its place
                features = features.max(1, keepdim=True).values
            poses = branch.primary.linear(features).unflatten(-1, branch.primary.shape)
            gains = routing.capsules.norm(dim=-1) / poses.detach().norm(dim=-1)
            branches.append(routing._replace(capsules=poses * gains.unsqueeze(-1)))
        fixed = output._replace(branches=tuple(branches))
        frozen = frozen_contributions(network, fixed, output)
        total = frozen[0, column]
        (slope,) = torch.autograd.grad(total, vectors)
        expected[:, column] = (slope * vectors.detach()).sum(-1)[0]
    torch.testing.assert_close(found[:, :n_classes], expected[:, :n_classes])


def test_peaks_are_the_words_of_the_strongest_ngrams():
    """A word that no feature of a network of peaks is strongest at adds nothing."""
    classifier = random_classifier(peaks=True, conv_capsules=False, ngram_sizes=(1,))
    network = capsule_network(classifier)
    for name, weight in network.named_parameters():
        if name.endswith("bias"):
            weight.data.zero_()
    network.branches = network.branches[1:]  # no capsules at every position
    texts = ["w1 w2 w3 w4 w5 w6 w7 w8 w9"]
    batch = batch_for(network, classifier.encode(texts), [0])
    output, vectors = run(network, batch)
    found = word_contributions(network, output, vectors, batch.mask)[0]  # (T, E)
    (branch,) = branches_of(network)
    features = branch.ngrams(vectors)[0][0]  # (T, F)
    strong = {int(f.argmax()) for f in features.T if f.max() > 0}
    assert 0 < len(strong) < 9
    assert set(found.abs().sum(1).nonzero().flatten().tolist()) == strong


def frozen_contributions(network, moving, still):
    """Return Σ contributions (B, E), linear in the capsules of `moving`."""
    from textcapsules.reasons.couplings import branch_contributions, class_pulls

    pulls = class_pulls(network, still)
    pairs = zip(branches_of(network), moving.branches, pulls, strict=True)
    parts = [branch_contributions(*each).sum(1) for each in pairs]
    return torch.stack(parts).sum(0)


def test_attention_logits_are_the_contributions_and_what_no_child_adds():
    """w · LN(z) of each class, written out for one text."""
    classifier = random_classifier(
        routing="attention",
        conv_capsules=False,
        architecture="capsule-a",
        ngram_sizes=(2,),
    )
    network = capsule_network(classifier)
    (document,) = classifier.encode(["w1 w2 w3 w4 w5"])
    batch = batch_for(network, [document], [0])
    output, _ = run(network, batch)
    (given,) = contributions(network, output)
    layer = branches_of(network)[0].classes
    assert isinstance(layer, AttentionLayer)
    poses, coupled = output.branches[0].classes[0], output.branches[0].classes[2]
    mass = coupled.sum(1)[0, : layer.n_out]
    logits = output.logits
    assert logits is not None
    shift = (layer.weight * layer.norm.bias).sum(1) + layer.bias
    rest = shift + layer.mass_weight * torch.log(mass + 1e-3)
    torch.testing.assert_close(given[0, :, : layer.n_out].sum(0), logits[0] - rest)
    shares = coupled[0, :, layer.n_out].mean()
    torch.testing.assert_close(given[0, :, layer.n_out].sum(), shares)
    assert poses.shape[1] == layer.n_out + 1
