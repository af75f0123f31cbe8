"""Heads on the same frozen encoder: capsules, two usual heads, logistic regression.

Every head reads the same states of the same texts. Options are chosen per head by the
dev score with the first seed, thresholds by the same calibration on dev documents; the
test texts are only scored. One JSON line per run; a run that the file already has is
not done again.

    python benchmarks/encoder_heads.py --corpora trec reuters-multi \
        --encoders all-MiniLM-L6-v2 --seeds 0 1 2 --out heads.jsonl
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from textcapsules.config import RunConfig, preset
from textcapsules.data.example import Example
from textcapsules.data.load import load_corpus
from textcapsules.inference.evaluate import evaluate
from textcapsules.model.baselines.pooled import MeanLinear
from textcapsules.model.classifier import TextClassifier, encoder_states
from textcapsules.text.batch import make_batch
from textcapsules.training.prepare import prepare
from textcapsules.training.run import classifier_of, train
from textcapsules.training.selection import DevSet

# What dev chooses among. All heads have the preset's epochs and schedule.
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "capsules": [
        {},
        {"train": {"joined": 0.33}},
    ],
    "encoder-linear": [
        {"train": {"learning_rate": 2e-3}},
        {"train": {"learning_rate": 2e-2}},
    ],
    "encoder-attention": [
        {"train": {"learning_rate": 2e-3}},
        {"train": {"learning_rate": 2e-2}},
    ],
    "logistic-regression": [{"C": C} for C in (0.01, 0.1, 1.0, 10.0, 100.0)],
}
# Further documents on which the models of a corpus are tested.
MORE_TESTS = {"reuters-multi": ["reuters-full"], "tickets-multi": ["tickets"]}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", nargs="+", default=["trec", "reuters-multi"])
    parser.add_argument("--encoders", nargs="+", default=["all-MiniLM-L6-v2"])
    parser.add_argument("--heads", nargs="+", default=list(CANDIDATES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for corpus in asked.corpora:
        for encoder in asked.encoders:
            for head in asked.heads:
                base = preset("encoder-frozen").replace(
                    data={"source": corpus, "data_dir": asked.data_dir},
                    text={"encoder": encoder},
                )
                compare(base, head, asked.seeds, asked.out)


def compare(base: RunConfig, head: str, seeds: list[int], out: Path) -> None:
    """Choose a head's options on dev with the first seed; test it with every seed."""
    run = {
        "corpus": base.data.source,
        "encoder": Path(str(base.text.encoder)).name,
        "head": head,
    }
    scores = []
    for options in CANDIDATES[head]:
        record = done(out, {**run, "seed": seeds[0], "options": options, "test": None})
        if record is None:
            record = {**run, "seed": seeds[0], "options": options, "test": None}
            record |= fit(base, head, options, seeds[0], tests={})
            write(out, record)
        scores.append(record["dev_score"])
    options = CANDIDATES[head][int(np.argmax(scores))]
    tests = dict(test_sets(base))
    for seed in seeds:
        chosen = {**run, "seed": seed, "options": options}
        if done(out, {**chosen, "chosen": True}) is None:
            found = fit(base, head, options, seed, tests=tests)
            write(out, {**chosen, "chosen": True, **found})


def test_sets(base: RunConfig) -> Iterator[tuple[str, list[Example]]]:
    """Yield the test sets of a corpus by their names."""
    source = base.data.source
    for name in [source, *MORE_TESTS.get(source, [])]:
        corpus = load_corpus(base.replace(data={"source": name}).data)
        yield name, list(corpus.test)


def fit(
    base: RunConfig,
    head: str,
    options: dict[str, Any],
    seed: int,
    *,
    tests: dict[str, list[Example]],
) -> dict[str, Any]:
    """Train one head and return its dev score and its test figures."""
    started = time.perf_counter()
    if head == "logistic-regression":
        classifier, dev = fit_regression(base, options["C"])
    else:
        architecture = base.model.architecture if head == "capsules" else head
        config = base.replace(**options).replace(model={"architecture": architecture})
        config = config.replace(train={"seed": seed})
        with tempfile.TemporaryDirectory() as folder:
            classifier = train(config, Path(folder) / "model")
        best = classifier.record["epochs"][classifier.record["best_epoch"] - 1]
        dev = best["dev_score"]
    found: dict[str, Any] = {"dev_score": dev}
    for name, examples in tests.items():
        figures = evaluate(classifier, examples)
        found.setdefault("test", {})[name] = {
            "texts": figures.texts,
            "accuracy": (figures.single_label or {}).get("accuracy"),
            "exact_match": figures.multi_label["exact_match"],
            "micro_f1": figures.multi_label["micro_f1"],
        }
    return {**found, "seconds": round(time.perf_counter() - started, 1)}


def fit_regression(base: RunConfig, C: float) -> tuple[TextClassifier, float]:
    """Fit a logistic regression over all classes on the mean states.

    Its coefficients are the weights of the linear head, so that everything else is the
    same.
    """
    config = base.replace(
        model={"architecture": "encoder-linear"}, loss={"loss": "cross-entropy"}
    )
    prepared = prepare(config)
    network = prepared.network
    assert isinstance(network, MeanLinear)
    states = encoder_states(network)
    assert states is not None
    dev = DevSet(prepared.config, prepared.dev, n_pieces=prepared.n_pieces)
    documents = prepared.train.documents
    states.encode_all([*documents, *dev.documents], torch.device("cpu"))
    means = mean_states(network, documents)
    labels = prepared.train.targets.argmax(1)
    regression = LogisticRegression(C=C, max_iter=2000).fit(means, labels)
    with torch.no_grad():
        weights, biases = regression.coef_, regression.intercept_
        if len(weights) == 1:  # of two classes, scikit-learn keeps one
            weights, biases = np.stack([0 * weights[0], weights[0]]), [0, biases[0]]
        network.output.weight.copy_(torch.tensor(np.array(weights)))
        network.output.bias.copy_(torch.tensor(np.array(biases)))
    network.eval()
    judged = dev.judge(network)["dev_score"]
    calibration = dev.calibrate(network)
    thresholds = [calibration["threshold"]] * len(prepared.corpus.labels)
    return classifier_of(prepared, calibration.get("thresholds", thresholds)), judged


@torch.inference_mode()
def mean_states(network: MeanLinear, documents: list[NDArray]) -> NDArray:
    """Return the mean state of each document (N, E), as the linear head has it."""
    rows, nothing = [], np.zeros((len(documents), 0), np.float32)
    for start in range(0, len(documents), 64):
        places = np.arange(start, min(start + 64, len(documents)))
        batch = make_batch(documents, nothing, places)
        inside = batch.mask.unsqueeze(2)
        total = (network.embedding(batch.ids) * inside).sum(1)
        rows.append((total / inside.sum(1).clamp(min=1)).numpy())
    return np.concatenate(rows)


def done(out: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record in the file that has these values, if there is one."""
    lines = out.read_text().splitlines() if out.exists() else []
    for record in map(json.loads, lines):
        if all(record.get(key) == value for key, value in wanted.items()):
            return record
    return None


def write(out: Path, record: dict[str, Any]) -> None:
    """Add a record to the file, and show it."""
    line = json.dumps(record)
    with out.open("a") as file:
        file.write(line + "\n")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
