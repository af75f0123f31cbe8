"""Logistic regression on the mean states of a pretrained encoder.

It is what a user of frozen embeddings would fit. Its coefficients become the weights of
the linear head (`MeanLinear`), so that dev figures, thresholds and test figures are
computed as for every other head. Where a text may have several labels, each label has
a regression of its own, as TF-IDF has; elsewhere one regression covers all labels.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus
from textcapsules.model.baselines.pooled import MeanLinear
from textcapsules.model.builder import gives_several
from textcapsules.model.classifier import TextClassifier, encoder_of, pick_device
from textcapsules.model.score import score_documents
from textcapsules.text.batch import make_batch
from textcapsules.training.join import with_joined
from textcapsules.training.loop import log_loss
from textcapsules.training.prepare import Encoded, Prepared, prepare
from textcapsules.training.run import classifier_of, environment
from textcapsules.training.selection import DevSet

__all__ = ["fit_regression"]

NEVER = -1e4  # the logit of a class that no text has
MAX_ITERATIONS = 2000
BATCH_SIZE = 64


def fit_regression(config: RunConfig, corpus: Corpus) -> TextClassifier:
    """Return the fitted model, with the record that `train` would leave.

    Args:
        config: of the architecture encoder-linear; `baseline.tfidf_c` is C.
        corpus: the texts.
    """
    started = time.perf_counter()
    prepared = prepare(config, corpus)
    network = prepared.network
    assert isinstance(network, MeanLinear)
    device = pick_device(config.train.device)
    network.to(device).eval()
    dev = DevSet(prepared.config, prepared.dev, n_pieces=prepared.n_pieces)
    train = with_joined(prepared.config, prepared.train, 0, n_pieces=prepared.n_pieces)
    encoder = encoder_of(network)
    assert encoder is not None
    encoder.encode_all([*train.documents, *dev.documents], device)
    fit_weights(network, prepared, train)
    several = gives_several(prepared.config)
    scores = score_documents(network, train.documents)
    epoch = {
        "epoch": 1,
        "loss": log_loss(scores, train.targets, several=several),
        **dev.judge(network),
    }
    calibration = dev.calibrate(network)
    common = (calibration["threshold"],) * len(corpus.labels)
    classifier = classifier_of(prepared, calibration.get("thresholds", common))
    classifier.record = {
        **prepared.facts,
        "best_epoch": 1,
        "calibration": calibration,
        "epochs": [epoch],
        "seconds": round(time.perf_counter() - started, 3),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **environment(network),
    }
    return classifier


def fit_weights(network: MeanLinear, prepared: Prepared, train: Encoded) -> None:
    """Put the coefficients of the regression into the linear layer."""
    means = mean_states(network, train.documents)
    shape = (network.n_classes, means.shape[1])
    weight, bias = np.zeros(shape), np.full(network.n_classes, NEVER)
    C = prepared.config.baseline.tfidf_c
    if network.several:
        for place in range(network.n_classes):
            is_class = train.targets[:, place] > 0
            if is_class.any() and not is_class.all():
                model: Any = LogisticRegression(C=C, max_iter=MAX_ITERATIONS)
                model.fit(means, is_class)
                weight[place], bias[place] = model.coef_[0], model.intercept_[0]
    else:
        classes = train.targets.argmax(1)
        model = LogisticRegression(C=C, max_iter=MAX_ITERATIONS).fit(means, classes)
        # Of two classes there is one plane, for the second; the first is its zero.
        seen = model.classes_[-len(model.coef_) :]
        bias[model.classes_] = 0
        weight[seen], bias[seen] = model.coef_, model.intercept_
    with torch.no_grad():
        network.output.weight.copy_(torch.from_numpy(weight))
        network.output.bias.copy_(torch.from_numpy(bias))


@torch.inference_mode()
def mean_states(network: MeanLinear, documents: Sequence[NDArray]) -> NDArray:
    """Return the mean state of each document (N, E), as the linear head has it."""
    rows, nothing = [], np.zeros((len(documents), 0), np.float32)
    device = network.output.weight.device
    for start in range(0, len(documents), BATCH_SIZE):
        places = np.arange(start, min(start + BATCH_SIZE, len(documents)))
        batch = make_batch(documents, nothing, places).to(device)
        inside = batch.mask.unsqueeze(2)
        total = (network.embedding(batch.ids) * inside).sum(1)
        rows.append((total / inside.sum(1).clamp(min=1)).cpu().numpy())
    return np.concatenate(rows)
