r"""How well a setting names the topics of a text that has several, without a test text.

Defaults can be chosen on what this judges, which they must not be on the tests:

    reuters     documents outside the tables: the topics with eight single training
                documents or more, the largest cut to 800. A seventh of the documents
                with one topic is dev, and a seventh is held out. Of the several
                topics of a document at least one is none of the paper's ten, so no
                document of the tables' test sets is read.
    tickets     1,000 more tickets written with the development phrases, half of them
                with two or three topics

    python benchmarks/several_topics.py reuters tickets --preset encoder-frozen \
        --encoder all-MiniLM-L6-v2
    python benchmarks/several_topics.py reuters --vectors w2v.npz --seeds 2 \
        --set train.epochs=12

Where a linear model of words is added (`train.word_scores`), the same network is
judged without them too, by thresholds of its own. Figures per network:

    several     exact match on documents with several topics
    single      the same on those with one
    all         both together, weighed as Reuters' test set is
    rank        documents whose k topics have the k highest scores
    dev         what the thresholds reach on the dev texts that they come from

Exact match is at the thresholds of both rules, one for all labels and one per label.
"""

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.files import write_json
from textcapsules.config import RunConfig, preset
from textcapsules.data.catalogue import card
from textcapsules.data.corpora import TEN_TOPICS, CorpusFiles, data_folder
from textcapsules.data.example import Corpus, Example
from textcapsules.data.tickets import read_tickets
from textcapsules.data.tickets.generate import Dice, draw_tickets
from textcapsules.inference.evaluate import evaluate_scores
from textcapsules.lab.paper.runs import commit
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.network import Network
from textcapsules.model.score import score_documents
from textcapsules.training.prepare import Encoded, target_matrix
from textcapsules.training.run import train
from textcapsules.training.selection import DevSet

LEAST_TEXTS = 8  # single training documents of a topic
MOST_TEXTS = 800
PART = 7  # one in so many is dev, one is held out
N_TICKETS = 500  # of one topic, and as many of several
FRESH = 1000  # a stream of random numbers that no seed of the tickets has below 250
CORPORA = ("reuters", "tickets")
SEVERAL = 339 / 2529  # share of documents with several topics in Reuters' test set


def main() -> None:
    """Train and judge the settings named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora", nargs="+", choices=CORPORA)
    parser.add_argument("--preset", default="best")
    parser.add_argument("--encoder", help="A folder or a name; none: words.")
    parser.add_argument("--vectors", help="File of word vectors.")
    parser.add_argument("--data-dir", help="Folder of the corpora.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="SECTION.FIELD=JSON", help="Options."
    )
    parser.add_argument("--out", type=Path, help="JSON file to write the record to.")
    args = parser.parse_args()
    config = preset(args.preset).replace(
        text={"vectors": args.vectors, "encoder": args.encoder},
        train={"refuse": False, "task": "multi-label"},
    )
    for option in args.set:
        name, _, value = option.partition("=")
        section, _, field = name.partition(".")
        config = config.replace(**{section: {field: json.loads(value)}})
    rows = []
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    for name, seed in itertools.product(args.corpora, seeds):
        config = config.replace(train={"seed": seed})
        corpus = other_topics(args.data_dir, seed) if name == "reuters" else tickets()
        for judged in judge(config, corpus):
            row = {"corpus": name, **judged}
            rows.append(row)
            sys.stdout.write(f"{json.dumps(row)}\n")
            sys.stdout.flush()
    if args.out is not None:
        said = {"preset": args.preset, "encoder": args.encoder, "set": args.set}
        said["vectors"] = None if args.vectors is None else Path(args.vectors).name
        write_json(args.out, {**said, "commit": commit(), "rows": rows})


def other_topics(data_dir: str | None, seed: int) -> Corpus:
    """Return the documents, split by a seed."""
    entry = card("reuters-full")
    documents = CorpusFiles(entry, data_folder(data_dir)).documents(entry.train[0])
    rng = np.random.default_rng(seed)
    of_topic: dict[str, list[Example]] = {}
    for document in documents:
        if document["split"] == "train" and len(document["topics"]) == 1:
            text = f"{document['title']}\n{document['body']}"
            topic = document["topics"][0]
            of_topic.setdefault(topic, []).append(Example(text, (topic,)))
    kept = {name: each for name, each in of_topic.items() if len(each) >= LEAST_TEXTS}
    parts: tuple[list[Example], ...] = ([], [], [])  # train, dev, held out
    for each in kept.values():
        for place, row in enumerate(rng.permutation(len(each))[:MOST_TEXTS]):
            parts[max(0, place % PART - PART + 3)].append(each[row])
    several = [
        Example(f"{document['title']}\n{document['body']}", tuple(document["topics"]))
        for document in documents
        if len(document["topics"]) > 1
        and kept.keys() >= set(document["topics"])
        and not set(document["topics"]) <= TEN_TOPICS
    ]
    training, dev, held_out = parts
    labels = tuple(sorted(kept))
    test = [*held_out, *several]
    return Corpus(
        "other topics", labels, training, dev, test, "multi-label", entry.rule, {}
    )


def tickets() -> Corpus:
    """Return the demonstration's tickets with others to judge."""
    corpus = read_tickets("tickets-multi")
    known = {example.text for example in (*corpus.train, *corpus.dev, *corpus.test)}
    judged = []
    for stream, several in ((FRESH, True), (FRESH + 1, False)):
        drawn = draw_tickets("dev", Dice(stream), multi=several)
        new = (ticket for ticket in drawn if ticket.text not in known)
        judged += [
            Example(ticket.text, ticket.topics)
            for ticket in itertools.islice(new, N_TICKETS)
        ]
    return corpus._replace(test=judged)


def judge(config: RunConfig, corpus: Corpus) -> list[dict[str, Any]]:
    """Train a setting and return its figures, and those without words."""
    with tempfile.TemporaryDirectory() as folder:
        classifier = train(
            config,
            Path(folder) / "model",
            corpus=corpus,
            test_reasons=False,
            keep_model=False,
        )
    record = classifier.record
    said = record.get("word_scores")
    about = {"seed": config.train.seed, "seconds": record["seconds"]}
    row = {**about, "words": said and said["kind"], **figures(classifier, corpus)}
    rows = [{**row, "weights": said}]
    network = classifier.network
    if isinstance(network, Network) and network.words is not None:
        network.words = None
        rows.append({**about, "words": "none", **figures(classifier, corpus)})
    return rows


def figures(classifier: TextClassifier, corpus: Corpus) -> dict[str, float]:
    """Return the figures of a network as it is, in percent."""
    labels = classifier.labels.names
    documents = classifier.encode([example.text for example in corpus.dev])
    dev = Encoded(documents, target_matrix(corpus.dev, labels))
    n_pieces = getattr(classifier.tokenizer, "n_marked", None)
    texts = classifier.encode([example.text for example in corpus.test])
    scores = score_documents(classifier.network, texts)
    targets = target_matrix(corpus.test, labels)
    many = targets.sum(1) > 1
    found = {"rank": float(ranked(scores[many], targets[many]).mean())}
    for rule in ("one", "per-label"):
        config = classifier.config.replace(train={"thresholds": rule})
        chosen = DevSet(config, dev, n_pieces=n_pieces).calibrate(classifier.network)
        thresholds = chosen.get("thresholds", chosen["threshold"])
        several, single = (
            evaluate_scores(
                scores[rows], targets[rows], labels, thresholds, several=True
            ).multi_label["exact_match"]
            for rows in (many, ~many)
        )
        together = SEVERAL * several + (1 - SEVERAL) * single
        of_rule = {"several": several, "single": single, "all": together}
        of_rule["dev"] = chosen["value"]
        prefix = "" if rule == "one" else "per_label_"
        found |= {f"{prefix}{name}": value for name, value in of_rule.items()}
    return {name: round(100 * value, 1) for name, value in found.items()}


def ranked(scores: NDArray, targets: NDArray) -> NDArray[np.bool_]:
    """Tell which texts' k labels have the k highest scores."""
    lowest_true = np.where(targets > 0, scores, np.inf).min(1)
    highest_false = np.where(targets > 0, -np.inf, scores).max(1)
    return lowest_true > highest_false


if __name__ == "__main__":
    main()
