"""How well models refuse texts outside their topics, and what that costs.

Of each model: the share of off-topic texts that get no label, by kind and by length,
with and without refusal; accuracy or exact match on the test texts of its corpus, with
and without; and the time per text as a ratio. The off-topic texts are those of
`textcapsules.data.off_topic`; the evidence was chosen on the half `development`, so
`held-out` is what counts. A folder of an earlier version gets the rule that a training
would have given it, from the same texts.

    python benchmarks/refusal.py runs/demo/model --out refusal.json
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from textcapsules import __version__
from textcapsules.base.files import write_json
from textcapsules.data.example import Corpus, Example
from textcapsules.data.load import load_corpus
from textcapsules.data.off_topic import HALVES, KINDS, OffTopic, make_off_topic
from textcapsules.data.tickets import read_tickets
from textcapsules.inference.evaluate import evaluate
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.outside import outside_rule

SIZES = ("short", "middling", "long")
ROUNDS = 9  # of timing, with and without the rule in turn


def main() -> None:
    """Measure the models named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, help="Model folders.")
    parser.add_argument("--half", choices=HALVES, default="held-out")
    parser.add_argument("--per-kind", type=int, default=120, help="Off-topic texts.")
    parser.add_argument("--data-dir", help="Folder of the corpora, if it has moved.")
    parser.add_argument("--out", type=Path, help="JSON file to write the record to.")
    args = parser.parse_args()
    off_topic = make_off_topic(args.half, per_kind=args.per_kind)
    rows = []
    for folder in args.models:
        rows.append(measure(folder, off_topic, args.data_dir))
        sys.stdout.write(f"{json.dumps(rows[-1], indent=2)}\n")
    record = {"half": args.half, "textcapsules": __version__, "models": rows}
    if args.out is not None:
        write_json(args.out, record)


def measure(
    folder: Path, off_topic: Sequence[OffTopic], data_dir: str | None
) -> dict[str, Any]:
    """Return all figures of one model."""
    classifier = TextClassifier.load(folder, "cpu")
    data = classifier.config.data
    if data_dir is not None:
        data = classifier.config.replace(data={"data_dir": data_dir}).data
    corpus = load_corpus(data)
    is_fitted = classifier.rule is None
    if is_fitted:
        parts = (classifier.config, classifier.tokenizer, corpus)
        classifier.rule = outside_rule(*parts)
    if classifier.rule is None:
        raise SystemExit(f"{folder}: too few dev texts for a rule")
    return {
        "model": folder.name,
        "corpus": data.source,
        "encoder": classifier.config.text.encoder,
        "architecture": classifier.config.model.architecture,
        "seed": classifier.config.train.seed,
        "rule": {**classifier.rule.to_dict(), "fitted_later": is_fitted},
        "table_bytes": int(classifier.rule.surprisal.nbytes),
        "off_topic": off_topic_figures(classifier, off_topic),
        "topical": topical_figures(classifier, corpus),
        "time_ratio": time_ratios(classifier, [each.text for each in corpus.test]),
    }


def off_topic_figures(
    classifier: TextClassifier, off_topic: Sequence[OffTopic]
) -> dict[str, Any]:
    """Return shares of off-topic texts without a label, with and without refusal."""
    texts = [each.text for each in off_topic]
    refusing = np.array([not p.labels for p in classifier.predict(texts)])
    plain = [not p.labels for p in classifier.predict(texts, refuse=False)]
    groups = {
        kind: np.array([each.kind == kind for each in off_topic]) for kind in KINDS
    } | {size: np.array([each.size == size for each in off_topic]) for size in SIZES}
    return {
        "texts": len(texts),
        "without_label": share(refusing),
        "without_label_before": share(np.array(plain)),
        "by_group": {name: share(refusing[rows]) for name, rows in groups.items()},
    }


def topical_figures(classifier: TextClassifier, corpus: Corpus) -> dict[str, Any]:
    """Return the figures of the test texts with and without refusal."""
    tests: dict[str, Sequence[Example]] = {corpus.name: corpus.test}
    if corpus.name == "tickets-multi":  # trained on the same texts
        tests["tickets"] = read_tickets("tickets").test
    figures: dict[str, Any] = {}
    for name, examples in tests.items():
        after = evaluate(classifier, examples)
        before = evaluate(classifier, examples, refuse=False)
        values: dict[str, Any] = {"texts": after.texts, "refused": after.refused}
        for key, result in (("before", before), ("after", after)):
            values[f"exact_match_{key}"] = round(result.multi_label["exact_match"], 4)
            if result.single_label is not None:
                accuracy = result.single_label["accuracy"]
                values[f"accuracy_{key}"] = round(accuracy, 4)
        figures[name] = values
    return figures


def time_ratios(classifier: TextClassifier, texts: Sequence[str]) -> dict[str, float]:
    """Return the time to read texts with the rule, relative to that without it."""
    rule, batch = classifier.rule, list(texts[:64])

    def timed(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    ratios = {}
    for name, work in {
        "one_text": lambda: [classifier.read([text]) for text in batch[:16]],
        "64_texts": lambda: classifier.read(batch),
    }.items():
        work()
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(ROUNDS):
            for with_rule in (True, False):
                classifier.rule = rule if with_rule else None
                times[with_rule].append(timed(work))
        classifier.rule = rule
        medians = {key: statistics.median(values) for key, values in times.items()}
        ratios[name] = round(medians[True] / medians[False], 3)
    return ratios


def share(rows: np.ndarray) -> float:
    """Return the share of true values."""
    return round(float(rows.mean()), 4)


if __name__ == "__main__":
    main()
