"""What capsules of single words are like: their lengths, and what the orphan gets.

A primary capsule of a uni-gram model stands for one word of the text. Its coupling to a
parent is a share of the leaky softmax, scaled by the capsule's own length where the
model has the amendment: what it gives is then its length, and else one. A word is
silent where the convolution's ReLU leaves it no feature: its capsules are then those of
the biases, whatever the word.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.classifier import TextClassifier
from textcapsules.explain.networks import capsule_network
from textcapsules.explain.routes import branches_of, existence
from textcapsules.text.batch import epoch_batches, make_batch

__all__ = ["FUNCTION_WORDS", "WordGroup", "WordSums", "sum_words"]

BATCH_SIZE = 32
# Articles, pronouns, prepositions, conjunctions, auxiliaries and the like.
FUNCTION_WORDS = frozenset(
    """
    a about above after again against all although am among an and another any are as at
    be because been before being below between both but by can could did do does down
    during each either every few for from had has have he her here him his how however
    i if in into is it its itself may me might more most must my neither no nor not now
    of off on once only onto or other our out over own per same shall she should since
    so some such than that the their them then there these they this those though
    through thus to too toward towards under until up upon us very was we were what when
    where whether which while who whom whose why will with within without would yet you
    your
    """.split()  # noqa: SIM905 (a page to read, not a list)
)


class WordGroup(NamedTuple):
    """Means over the occurrences of some words."""

    occurrences: int
    silent: float  # share of them without a feature
    length: float  # of their capsules
    coupled: float  # to the orphan
    share: float  # of all that they give to anybody or nobody, what the orphan gets


class WordSums(NamedTuple):
    """Sums over the occurrences of each of V words, capsules of a word averaged."""

    words: tuple[str, ...]
    counts: NDArray[np.float64]  # (V,)
    silent: NDArray[np.float64]  # (V,)
    lengths: NDArray[np.float64]  # (V,)
    given: NDArray[np.float64]  # (V,), to all parents and to nobody
    coupled: NDArray[np.float64]  # (V,), given to the orphan
    shares: NDArray[np.float64]  # (V,), of what an occurrence gives, the orphan's

    def means(self, *, function: bool) -> WordGroup:
        """Return the means of the function words, or of the others."""
        chosen = np.array([word in FUNCTION_WORDS for word in self.words]) == function
        totals = [float(part[chosen].sum()) for part in self[1:]]
        count, silent, length, given, coupled, _ = totals
        n = max(count, 1.0)
        share = coupled / given if given else 0.0
        return WordGroup(int(count), silent / n, length / n, coupled / n, share)

    def strongest(self, values: NDArray[np.float64], top: int) -> list[str]:
        """Return the words with the highest values, alphabetically where equal."""
        order = np.lexsort((np.array(self.words), -values))
        return [self.words[row] for row in order[:top]]


@torch.no_grad()
def sum_words(classifier: TextClassifier, texts: Sequence[str]) -> WordSums:
    """Add up what becomes of each word's capsules, with a uni-gram model.

    Args:
        classifier: a capsule network with an orphan, of one n-gram size, 1, and
            without convolutional capsules.
        texts: words of theirs that the model does not know are left out.
    """
    network = capsule_network(classifier)
    was_training = network.training
    network.eval()
    (branch,) = branches_of(network)
    device = next(network.parameters()).device
    words = tuple(classifier.tokenizer.words)
    totals = torch.zeros(len(words), 6, dtype=torch.float64)
    documents = classifier.encode(texts)
    nothing = np.zeros((len(documents), 0), np.float32)
    sizes = [len(ids) for ids in documents]
    for rows in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
        batch = make_batch(documents, nothing, rows).to(device)
        (routing,) = network(batch.ids, batch.mask, inspect=True).branches
        given = existence(branch.classes, routing.capsules)  # (B, T, C)
        orphan = routing.classes.couplings[..., -1].unflatten(1, given.shape[1:])
        shares = orphan / given.clamp(min=torch.finfo(given.dtype).tiny)
        lengths = torch.linalg.vector_norm(routing.capsules, dim=-1)
        features, _ = branch.ngrams(network.embedding(batch.ids), batch.mask)
        silent = (features == 0).all(-1, keepdim=True).expand_as(given)
        ones = torch.ones_like(given)
        parts = [ones, silent.to(given), lengths, given, orphan, shares]
        found = torch.stack([part.mean(2) for part in parts], -1)[batch.mask]
        totals.index_add_(0, batch.ids[batch.mask].cpu(), found.double().cpu())
    network.train(was_training)
    first = classifier.tokenizer.first_word
    met = np.flatnonzero(totals[:, 0].numpy() * (np.arange(len(words)) >= first))
    return WordSums(
        tuple(words[row] for row in met), *totals[met].numpy().T.astype(np.float64)
    )
