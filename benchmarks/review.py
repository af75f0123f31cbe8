"""How much a few reviewed texts are worth: exact match before and after.

For each of ten draws the test documents are parted at random: some are there to be
reviewed, with their true labels as the answers, the others are judged. Reviewed texts
come at random or as `textcapsules review` asks for them. Thresholds change as
`textcapsules calibrate` would change them: not if they are estimated to be worse.

"joined" has thresholds chosen on joined dev documents alone (`--calibrate-on joined`),
which suit such documents badly: there the reviews have more to correct.

Nothing is chosen here: the strengths of the prior were chosen on joined dev documents.

    python benchmarks/review.py --reuters MODEL --reuters-svm MODEL --tickets MODEL \
        --data-dir DATA --out benchmarks/results/review.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules import __version__
from textcapsules.base.files import write_json
from textcapsules.config import DataConfig
from textcapsules.data.example import Example
from textcapsules.data.load import load_split
from textcapsules.data.tickets import make_tickets
from textcapsules.inference.recalibrate import fit_reviews
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.score import past, score_documents
from textcapsules.training.calibrate import (
    best_threshold,
    common_threshold,
    exact_match,
    logit,
)
from textcapsules.training.join import draw_joined
from textcapsules.training.prepare import encode_examples

DRAWS = 10
REVIEWS = (0, 10, 20, 50)
POOL = 0.5  # share of the documents that may be reviewed
SINGLE = 0.95  # share of tickets with one topic, in the mixture


def matrix(
    labels: Sequence[tuple[str, ...]], names: tuple[str, ...]
) -> NDArray[np.bool_]:
    """Return which labels each text has, (N, J)."""
    return np.array([[name in row for name in names] for row in labels])


def queue_order(scores: NDArray, thresholds: NDArray, order: NDArray) -> list[int]:
    """Return rows as a review brings them up: uncertain ones, each fourth random."""
    margins = np.abs(logit(scores) - logit(thresholds)).min(1)
    uncertain, random = iter(np.argsort(margins, kind="stable")), iter(order)
    rows: list[int] = []
    while len(rows) < max(REVIEWS):
        source = random if len(rows) % 4 == 3 else uncertain
        rows.append(int(next(row for row in source if int(row) not in rows)))
    return rows


def joined_thresholds(model: TextClassifier, data_dir: str | None) -> NDArray:
    """Return the one best threshold on joined dev documents."""
    config = model.config
    dev = load_split(config.replace(data={"data_dir": data_dir}).data, "dev")
    encoded, _ = encode_examples(model.encoder, dev, model.labels.names)
    seed = config.data.split_seed
    joined = draw_joined(config, encoded, len(dev), seed, seed)
    scores = score_documents(model.network, joined.documents)
    return common_threshold(scores, joined.targets).each


def simulate(
    model: TextClassifier, scores: NDArray, truth: NDArray, thresholds: NDArray
) -> dict[str, Any]:
    """Return exact match after so many reviews, one figure per draw."""
    figures: dict[str, Any] = {
        "best fixed threshold, known afterwards": [],
        "best fixed threshold on the pool": [],
    }
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(len(scores))
        pool, judged = np.split(order, [int(POOL * len(order))])
        several = truth[judged].sum(1) > 1
        best = best_threshold(scores[judged], truth[judged])[1]
        figures["best fixed threshold, known afterwards"].append(best)
        # What such a threshold is worth if it is chosen on other documents.
        other = best_threshold(scores[pool], truth[pool])[0]
        value = exact_match(past(scores[judged], other), truth[judged])
        figures["best fixed threshold on the pool"].append(value)
        orders = {
            "random": list(range(len(pool))),
            "as asked": queue_order(scores[pool], thresholds, np.arange(len(pool))),
        }
        for way, rows in orders.items():
            for n in REVIEWS:
                chosen = pool[rows[:n]]
                fitted, at_least_one = thresholds, False
                if n:
                    result = fit_reviews(
                        scores[chosen],
                        truth[chosen],
                        model.labels.names,
                        thresholds.tolist(),
                    )
                    if not result.is_worse:
                        fitted = np.array(result.after)
                        at_least_one = result.at_least_one
                decided = past(scores[judged], fitted, at_least_one=at_least_one)
                figure = figures.setdefault(f"{way}, {n} reviews", {})
                parts = {"all": np.ones(len(judged), bool), "several labels": several}
                for part, among in parts.items():
                    value = exact_match(decided[among], truth[judged][among])
                    figure.setdefault(part, []).append(value)
    return figures


def summary(figures: Any) -> Any:
    """Return means and standard deviations of the draws, in percent."""
    if isinstance(figures, dict):
        return {name: summary(value) for name, value in figures.items()}
    values = 100 * np.array(figures)
    return {"mean": round(values.mean(), 2), "sd": round(values.std(ddof=1), 2)}


def mixed_tickets() -> list[Example]:
    """Return test tickets of another seed, few of them with several topics."""
    splits = make_tickets(n_train=1, n_dev=1, seed=7)
    n_multi = round(len(splits.test) * (1 - SINGLE) / SINGLE)
    tickets = [*splits.test, *splits.multi[:n_multi]]
    return [Example(ticket.text, ticket.topics) for ticket in tickets]


def main() -> None:
    """Run the simulation on the models given, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("reuters", "reuters-svm", "tickets"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    record: dict[str, Any] = {
        "version": __version__,
        "draws": DRAWS,
        "pool": POOL,
        "single": SINGLE,
        "results": {},
    }
    if given.out.exists():  # models may be added one by one
        record["results"] = json.loads(given.out.read_text())["results"]
    for name in ("reuters", "reuters_svm", "tickets"):
        if getattr(given, name) is None:
            continue
        model = TextClassifier.load(getattr(given, name), "cpu")
        examples = (
            mixed_tickets()
            if name == "tickets"
            else load_split(
                DataConfig(source="reuters-full", data_dir=given.data_dir), "test"
            )
        )
        texts, labels = zip(*examples, strict=True)
        truth = matrix(labels, model.labels.names)
        scores = model.scores(list(texts))
        starts = {
            "as trained": np.array(model.labels.thresholds),
            "joined": joined_thresholds(model, given.data_dir),
        }
        figures = {
            start: simulate(model, scores, truth, thresholds)
            for start, thresholds in starts.items()
        }
        record["results"][name] = {
            "architecture": model.config.model.architecture,
            "preset": model.config.preset,
            "documents": len(texts),
            "several": int((truth.sum(1) > 1).sum()),
            "exact_match": summary(figures),
        }
        sys.stdout.write(f"{name} {json.dumps(record['results'][name], indent=1)}\n")
        write_json(given.out, record)


if __name__ == "__main__":
    main()
