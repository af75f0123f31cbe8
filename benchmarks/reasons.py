"""How faithful the reasons of trained models are, and what they cost.

    python benchmarks/reasons.py MODEL ... --data-dir FOLDER --out benchmarks/results
    python benchmarks/reasons.py --table trec mr --out benchmarks/results

For every model folder: a sample of its dev texts, all methods of the package, LIME and
SHAP, each ranking the words of a text for each label that the model gives it. The
strongest words are deleted, and kept alone, at 5 to 50% of a text's words
(`textcapsules.reasons.faithfulness`). Cost is the CPU time to rank the words of one
text for one label, divided by that of one prediction, one text at a time, an encoder
remembering nothing. A model of the tickets is also asked for planted phrases and for
twenty texts written by hand.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from hand_written import HAND_WRITTEN

from textcapsules.data.load import load_corpus
from textcapsules.data.tickets import make_tickets
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons import explain, faithfulness
from textcapsules.reasons.attributions import document_lengths, keep_tokens
from textcapsules.reasons.choice import measure_reasons
from textcapsules.reasons.couplings import contributions
from textcapsules.reasons.methods import (
    batch_for,
    default_method,
    evaluating,
    methods_of,
)
from textcapsules.reasons.phrases import pick_phrases
from textcapsules.reasons.strengths import (
    NgramStrengths,
    by_place,
    find_strengths,
)

PER_NGRAM = "contributions of n-grams"
RIVALS = ("lime", "shap")
PARTS = ("choice", "methods", "trials", "planted", "by_hand")
SAMPLES = 100  # texts that LIME and SHAP score for one explanation


def dev_texts(classifier, data_dir):
    """Return the dev texts that a model was selected on."""
    config = classifier.config
    if data_dir is not None and config.data.data_dir is not None:
        config = config.replace(data={"data_dir": str(data_dir)})
    return [example.text for example in load_corpus(config.data).dev]


def forget(classifier):
    """Let an encoder forget the sentences it has read, so that costs are true."""
    for module in getattr(classifier.network, "modules", list)():
        states = getattr(module, "states", None)
        if hasattr(states, "cache"):
            states.cache.clear()
            states.n_cached = 0


def rank_by_rival(name, network, ids, label):
    """Rank the words of one document by LIME or by SHAP."""
    size = len(ids)

    def score(masks):
        kept = [
            keep_tokens(network, ids, np.asarray(mask, dtype=bool)) for mask in masks
        ]
        return document_lengths(network, kept)[:, label]

    if name == "lime":
        from lime.lime_base import LimeBase

        random = np.random.RandomState(0)
        masks = np.ones((SAMPLES, size))
        for row in masks[1:]:  # as lime.lime_text draws its neighbours
            gone = random.choice(size, random.randint(1, size + 1), replace=False)
            row[gone] = 0
        share = masks.mean(1)
        distances = 100 * (1 - np.sqrt(share))  # cosine, times 100
        base = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 25**2)), random_state=random)
        scores = score(masks)
        _, weights, *_ = base.explain_instance_with_data(
            masks, np.stack([1 - scores, scores], 1), distances, 1, size
        )
        strengths = np.zeros(size)
        for word, weight in weights:
            strengths[word] = weight
    else:
        import shap

        explainer = shap.KernelExplainer(score, np.zeros((1, size)), silent=True)
        strengths = explainer.shap_values(
            np.ones((1, size)), nsamples=SAMPLES, silent=True, l1_reg=0.0
        )[0]
    return np.argsort(-strengths, kind="stable")


def rank_by_ngrams(network, ids, label):
    """Rank the words of one document by what n-grams add, as a whole each."""
    batch = batch_for(network, [ids], [0])
    with torch.no_grad():
        output = network(batch.ids, batch.mask, inspect=True)
        places = find_strengths(network, batch.ids, batch.mask, "couplings").ngrams
        parts = by_place(network, contributions(network, output))
        values = [part[..., [label]].numpy() for part in parts]
    ngrams = [
        NgramStrengths(place.size, place.stride, value, place.first)
        for place, value in zip(places, values, strict=True)
    ]
    n_tokens = np.array([len(ids)])
    ranked = pick_phrases(
        faithfulness.as_ranks(ngrams), n_tokens, len(ids), min_share=0.0
    )
    parts = (part[0, 0].tolist() for part in ranked[:3])
    spans = [
        np.arange(start, end)
        for start, end, rank in zip(*parts, strict=True)
        if rank > 0
    ]
    return np.concatenate(spans)


def rank(name, network, case, random):
    """Rank the words of one document by any method."""
    if name in RIVALS:
        return rank_by_rival(name, network, *case)
    if name == PER_NGRAM:
        return rank_by_ngrams(network, *case)
    return faithfulness.rank_tokens(network, [case.ids], case.label, name, random)[0]


def measure_model(classifier, texts, n_texts, n_rivals):
    """Return one row per method, with standard errors and costs."""
    network, random = classifier.network, np.random.default_rng(0)
    cases, _ = faithfulness.draw_cases(classifier, texts, n_texts, random)
    rows, gaps = {}, {}
    with evaluating(network):
        document_lengths(network, [cases[0].ids])
        forget(classifier)
        started = time.process_time()
        for case in cases:
            document_lengths(network, [case.ids])
        per_text = (time.process_time() - started) / len(cases)
        names = [*methods_of(network)]
        names += [PER_NGRAM] if "couplings" in names else []
        for name in [*names, *RIVALS, faithfulness.RANDOM]:
            part = cases[:n_rivals] if name in RIVALS else cases
            rank(name, network, part[0], random)  # kernels may be loaded only now
            forget(classifier)
            started = time.process_time()
            orders = [rank(name, network, case, random) for case in part]
            seconds = (time.process_time() - started) / len(part)
            found = measure_orders(network, part, orders)
            gaps[name] = found.gaps()
            lost, missing = 1 - found.deleted.mean(1), 1 - found.kept.mean(1)
            rows[name] = {
                "cases": len(part),
                "comprehensiveness": mean_error(lost),
                "sufficiency": mean_error(missing),
                "gap": mean_error(gaps[name]),
                "cost": None if name == faithfulness.RANDOM else seconds / per_text,
            }
    default = default_method(classifier)
    for name, row in rows.items():
        n_cases = row["cases"]
        row["behind_default"] = mean_error(gaps[default][:n_cases] - gaps[name])
    return rows


def measure_orders(network, cases, orders):
    """Delete and keep the first words of each order; `measure` with given orders."""
    rank_cases, faithfulness.rank_cases = (
        faithfulness.rank_cases,
        lambda *_: iter(orders),
    )
    try:
        return faithfulness.measure(network, cases, "", np.random.default_rng(0))
    finally:
        faithfulness.rank_cases = rank_cases


def mean_error(values):
    """Return a mean and its standard error."""
    error = values.std() / np.sqrt(len(values))
    return [round(float(values.mean()), 4), round(float(error), 4)]


def measure_trials(classifier, texts):
    """Return what tried phrases cost beside proposed ones and beside a prediction."""
    seconds = {}
    for name, call in {
        "predict": lambda text: classifier.predict(text),
        "propose": lambda text: explain(classifier, text, verify=False).labels,
        "explain": lambda text: explain(classifier, text).labels,
    }.items():
        call(texts[0])
        forget(classifier)
        started = time.process_time()
        for text in texts:
            call(text)
        seconds[name] = (time.process_time() - started) / len(texts)
    n_trials = [
        len(each.trials) + len(each.sentences) for each in explain(classifier, texts)
    ]
    return {
        "predict_ms": 1000 * seconds["predict"],
        "propose_cost": seconds["propose"] / seconds["predict"],
        "explain_cost": seconds["explain"] / seconds["predict"],
        "deletions": float(np.mean(n_trials)),
    }


def planted(classifier, n_tickets):
    """Return how many of the three strongest phrases the generator wrote for a label.

    Also how often the label is still given without the words that the spans mark: then
    the model rightly goes by other words of the sentence.
    """
    tickets = make_tickets(n_train=1, n_dev=1, n_test=1, n_multi=n_tickets, seed=11)
    tickets = tickets.multi
    texts = [ticket.text for ticket in tickets]
    hits = {"spans": [], "sentences": []}
    still_given, without = [], []
    for ticket, explanation in zip(tickets, explain(classifier, texts), strict=True):
        for label in explanation.labels:
            if not (label.predicted and label.label in ticket.topics):
                continue
            for kind, found in hits.items():
                places = [s for s in getattr(ticket, kind) if s.topic == label.label]
                for phrase in label.phrases[:3]:
                    covered = sum(
                        max(0, min(s.end, phrase.end) - max(s.start, phrase.start))
                        for s in places
                    )
                    found.append(2 * covered >= phrase.end - phrase.start)
            text = ticket.text
            spans = [s for s in ticket.spans if s.topic == label.label]
            for span in sorted(spans, reverse=True):
                text = f"{text[: span.start]} {text[span.end :]}"
            without.append((text, label.label))
    for (_, label), prediction in zip(
        without, classifier.predict([text for text, _ in without]), strict=True
    ):
        still_given.append(label in prediction.labels)
    return {
        "tickets": n_tickets,
        "phrases": len(hits["spans"]),
        "in_spans": mean_error(np.array(hits["spans"], dtype=float)),
        "in_sentences": mean_error(np.array(hits["sentences"], dtype=float)),
        "given_without_spans": mean_error(np.array(still_given, dtype=float)),
    }


def by_hand(classifier):
    """Return for each text and label written by hand whether the first phrase fits."""
    rows = []
    for text, label, words, kind in HAND_WRITTEN:
        explanation = explain(classifier, text, about=[label])
        (found,) = [each for each in explanation.labels if each.label == label]
        first = found.phrases[0].text if found.phrases else ""
        fits = found.predicted and any(word in first.lower() for word in words)
        rows.append(
            {
                "text": text,
                "label": label,
                "kind": kind,
                "score": round(found.score, 3),
                "given": found.predicted,
                "first": first,
                "fits": bool(fits),
            }
        )
    return {"fits": sum(row["fits"] for row in rows), "of": len(rows), "texts": rows}


ROWS = {
    **dict.fromkeys(("contributions", "sampled", "couplings", PER_NGRAM)),
    **dict.fromkeys(("gradient", "integrated", "erasure")),
    **{"lime": "LIME", "shap": "SHAP", "random": "words in random order"},
}


def write_table(folder, names):
    """Write the gaps, their errors and the costs of some records as Markdown."""
    records = [
        json.loads((folder / f"reasons-{name}.json").read_text()) for name in names
    ]
    lines = [["method", *names], ["---"] * (len(names) + 1)]
    for row, title in ROWS.items():
        cells = [title or (row if " " in row else f"`{row}`")]
        for record in records:
            found = record["methods"].get(row)
            if found is None:
                cells.append("")
                continue
            gap, error = found["gap"]
            cell = f"{gap:.2f} ± {error:.2f}"
            if found["cost"] is not None:
                cell += f"; {found['cost']:.1f}"
            cells.append(f"**{cell}**" if row == record["default"] else cell)
        lines.append(cells)
    for line in lines:
        sys.stdout.write(f"| {' | '.join(line)} |\n")


def main():
    """Measure each model, and write one record per model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--table", nargs="+", help="names of records", default=[])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--texts", type=int, default=80)
    parser.add_argument("--rival-cases", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.table:
        write_table(options.out, options.table)
    torch.set_num_threads(1)
    for folder in options.models:
        classifier = TextClassifier.load(folder, "cpu")
        path = options.out / f"reasons-{folder.name}.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        record |= measure_parts(classifier, options)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        sys.stdout.write(f"{path}: default {record['default']}\n")
        sys.stdout.flush()


def measure_parts(classifier, options):
    """Return the parts of a model's record that are asked for."""
    found = {"default": default_method(classifier)}
    is_tickets = classifier.config.data.source.startswith("tickets")
    texts = dev_texts(classifier, options.data_dir)
    if "choice" in options.parts:
        started = time.process_time()
        chosen = measure_reasons(classifier, texts)
        seconds = time.process_time() - started
        classifier.record["reasons"] = chosen
        found["choice"] = {"seconds": round(seconds, 2), **(chosen or {})}
        found["default"] = default_method(classifier)
    if "methods" in options.parts:
        found["methods"] = measure_model(
            classifier, texts, options.texts, options.rival_cases
        )
    if "trials" in options.parts:
        found["trials"] = measure_trials(classifier, texts[: options.texts])
    if "planted" in options.parts and is_tickets:
        found["planted"] = planted(classifier, 200)
    if "by_hand" in options.parts and is_tickets:
        found["by_hand"] = by_hand(classifier)
    return found


if __name__ == "__main__":
    main()
