"""How well models refuse texts outside their topics, and what that costs.

Of each model: the share of off-topic texts that get no label, by kind and by length,
with and without refusal; accuracy or exact match on the test texts of its corpus, with
and without; and the share of the time per text that refusal adds. The off-topic texts
are those of `textcapsules.data.off_topic`; the evidence was chosen on the half
`development`, so `held-out` is what counts. With --refit, a folder of an earlier
version gets the rule that a training would give it now, from the same texts.

    python benchmarks/refusal.py runs/demo/model --out refusal.json

The rule needs no network, so corpora can be measured without a model, on words and on
the word pieces of an encoder: which share of the off-topic texts is refused, of the
corpus' own test texts, and of the test texts of the other corpora. Refusals cost at
most the share of the own test texts that is refused.

    python benchmarks/refusal.py --corpora tickets trec mr --out rules.json
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
from textcapsules.config import preset
from textcapsules.data.example import Corpus, Example
from textcapsules.data.load import load_corpus
from textcapsules.data.off_topic import HALVES, KINDS, OffTopic, make_off_topic
from textcapsules.data.tickets import read_tickets
from textcapsules.inference.evaluate import evaluate
from textcapsules.model.classifier import TextClassifier
from textcapsules.text.encode import Encoder
from textcapsules.text.encoder_files import find_encoder
from textcapsules.text.outside import OutsideRule
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.text.vocabulary import TextTokenizer
from textcapsules.training.outside import outside_rule

SIZES = ("short", "middling", "long")
ROUNDS = 7  # of timing


def main() -> None:
    """Measure the models named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, help="Model folders.")
    parser.add_argument("--corpora", nargs="*", default=[], help="Without a model.")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="Of --corpora.")
    parser.add_argument("--half", choices=HALVES, default="held-out")
    parser.add_argument("--per-kind", type=int, default=120, help="Off-topic texts.")
    parser.add_argument("--data-dir", help="Folder of the corpora, if it has moved.")
    parser.add_argument(
        "--refit", action="store_true", help="Give models the rule of this version."
    )
    parser.add_argument("--out", type=Path, help="JSON file to write the record to.")
    args = parser.parse_args()
    off_topic = make_off_topic(args.half, per_kind=args.per_kind)
    rows = []
    for folder in args.models:
        rows.append(measure(folder, off_topic, args.data_dir, refit=args.refit))
        sys.stdout.write(f"{json.dumps(rows[-1], indent=2)}\n")
    record = {"half": args.half, "textcapsules": __version__, "models": rows}
    if args.corpora:
        record["corpora"] = measure_rules(
            args.corpora, args.encoder, off_topic, args.data_dir
        )
        sys.stdout.write(f"{json.dumps(record['corpora'], indent=2)}\n")
    if args.out is not None:
        write_json(args.out, record)


def measure(
    folder: Path,
    off_topic: Sequence[OffTopic],
    data_dir: str | None,
    *,
    refit: bool = False,
) -> dict[str, Any]:
    """Return all figures of one model."""
    classifier = TextClassifier.load(folder, "cpu")
    data = classifier.config.data
    if data_dir is not None:
        data = classifier.config.replace(data={"data_dir": data_dir}).data
    corpus = load_corpus(data)
    is_fitted = refit or classifier.rule is None
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
        "table_bytes": table_bytes(classifier.rule),
        "off_topic": off_topic_figures(classifier, off_topic),
        "topical": topical_figures(classifier, corpus),
        "time_added": time_shares(classifier, [each.text for each in corpus.test]),
    }


def table_bytes(rule: OutsideRule) -> int:
    """Return the size of a rule's tables."""
    contrast = 0 if rule.contrast is None else rule.contrast.table.nbytes
    return int(rule.surprisal.nbytes + contrast)


def measure_rules(
    names: Sequence[str],
    encoder: str,
    off_topic: Sequence[OffTopic],
    data_dir: str | None,
) -> list[dict[str, Any]]:
    """Return what the rule of each corpus refuses, without a model."""
    base = preset("best")
    if data_dir is not None:
        base = base.replace(data={"data_dir": data_dir})
    corpora = {
        name: load_corpus(base.replace(data={"source": name}).data) for name in names
    }
    pieces = load_pieces(encoder)
    tests = {name: [each.text for each in corpora[name].test] for name in names}
    groups = by_group(off_topic)
    rows = []
    for name, corpus in corpora.items():
        words = (each.text for each in corpus.train)
        for unit, tokenizer in {
            "words": TextTokenizer.train(words, rule=corpus.rule),
            encoder: pieces,
        }.items():
            rule = outside_rule(base, tokenizer, corpus)
            assert rule is not None
            reader = Encoder(base, tokenizer)

            def refused(
                texts: list[str], rule: Any = rule, reader: Encoder = reader
            ) -> np.ndarray:
                return rule.outside(reader.cut_ids(texts)[0], reader.tokenizer)

            outside = refused([each.text for each in off_topic])
            others = {other: share(refused(tests[other])) for other in names}
            rows.append(
                {
                    "corpus": name,
                    "units": unit,
                    "rule": rule.to_dict(),
                    "off_topic": share(outside),
                    "by_group": {k: share(outside[v]) for k, v in groups.items()},
                    "own_test": others.pop(name),
                    "other_tests": others,
                }
            )
    return rows


def load_pieces(encoder: str) -> PieceTokenizer:
    """Return the tokenizer of an encoder, whose weights are not needed."""
    return PieceTokenizer.load(find_encoder(encoder) / "tokenizer.json", max_pieces=504)


def by_group(off_topic: Sequence[OffTopic]) -> dict[str, np.ndarray]:
    """Return which texts are of each kind, and of each size."""
    return {
        kind: np.array([each.kind == kind for each in off_topic]) for kind in KINDS
    } | {size: np.array([each.size == size for each in off_topic]) for size in SIZES}


def off_topic_figures(
    classifier: TextClassifier, off_topic: Sequence[OffTopic]
) -> dict[str, Any]:
    """Return shares of off-topic texts without a label, with and without refusal."""
    texts = [each.text for each in off_topic]
    refusing = np.array([not p.labels for p in classifier.predict(texts)])
    plain = [not p.labels for p in classifier.predict(texts, refuse=False)]
    groups = by_group(off_topic)
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


def time_shares(classifier: TextClassifier, texts: Sequence[str]) -> dict[str, float]:
    """Return the time that the rule adds, relative to reading without it."""
    rule, batch = classifier.rule, list(texts[:32])
    ids = classifier.encoder.cut_ids(batch)[0]
    shares = {}
    for name, size in {"one_text": 1, "32_texts": 32}.items():
        starts = range(0, len(batch), size)
        with_rule = median_time(
            lambda starts=starts, size=size: [
                classifier.outside(ids[start : start + size]) for start in starts
            ]
        )
        classifier.rule = None
        reading = median_time(
            lambda starts=starts, size=size: [
                classifier.read(batch[start : start + size]) for start in starts
            ]
        )
        classifier.rule = rule
        shares[name] = round(with_rule / reading, 4)
    return shares


def median_time(work: Callable[[], Any]) -> float:
    """Return the median time of some calls, after a first one."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def share(rows: np.ndarray) -> float:
    """Return the share of true values."""
    return round(float(rows.mean()), 4)


if __name__ == "__main__":
    main()
