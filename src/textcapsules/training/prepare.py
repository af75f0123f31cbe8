"""From options to everything training needs: corpus, vocabulary, vectors, documents."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus, Example
from textcapsules.data.load import load_corpus
from textcapsules.errors import ConfigError, DataError
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.score import drop_unreadable
from textcapsules.text.vectors import (
    coverage,
    load_vectors,
    random_vectors,
    words_with_vectors,
)
from textcapsules.text.vocabulary import UNK_ID, TextTokenizer

__all__ = ["Encoded", "Prepared", "encode_examples", "prepare", "target_matrix"]

log = logging.getLogger(__name__)


class Encoded(NamedTuple):
    """Texts as word numbers, and their labels as a 0/1 matrix (N, J)."""

    documents: list[NDArray[np.int32]]
    targets: NDArray[np.float32]


class Prepared(NamedTuple):
    """All that training reads, and the facts worth recording."""

    config: RunConfig  # with nothing left on auto
    corpus: Corpus
    tokenizer: TextTokenizer
    network: CapsuleNetwork
    train: Encoded
    dev: Encoded
    facts: dict[str, Any]


def prepare(config: RunConfig) -> Prepared:
    """Read the data, build the vocabulary and a fresh network, all from the seeds."""
    corpus = load_corpus(config.data)
    check_corpus(corpus)
    config = resolve(config, corpus)
    tokenizer = build_tokenizer(config, corpus)
    check_words(tokenizer, corpus)
    limit = config.text.max_tokens
    train = encode_examples(tokenizer, corpus.train, corpus.labels, limit)
    dev = encode_examples(
        tokenizer,
        corpus.dev,
        corpus.labels,
        limit,
        source=config.data.dev or "the dev texts",
    )
    vectors, vector_facts = build_vectors(config, tokenizer, train)
    config = config.replace(model={"embedding_size": vectors.shape[1]})
    torch.manual_seed(config.train.seed)
    network = build_network(
        config.model,
        n_words=tokenizer.n_words,
        n_classes=len(corpus.labels),
        max_tokens=limit,
        vectors=vectors,
    )
    facts = {
        "corpus": corpus.facts,
        "texts": {"train": len(corpus.train), "dev": len(corpus.dev)},
        "fingerprint": fingerprint(corpus, tokenizer, vectors),
        "words": tokenizer.n_words,
        "vectors": vector_facts,
        "parameters": sum(p.numel() for p in network.parameters() if p.requires_grad),
    }
    return Prepared(config, corpus, tokenizer, network, train, dev, facts)


def check_corpus(corpus: Corpus) -> None:
    """Refuse what no classifier can learn from."""
    if len(corpus.labels) < 2:
        raise DataError(
            f"{corpus.name} must have at least two labels to tell apart; got "
            f"{list(corpus.labels)}. Check the label column."
        )
    if not corpus.dev:
        raise DataError(
            f"{corpus.name} must have at least 2 texts to hold one out for "
            f"development; got {len(corpus.train)}. Add texts or name a --dev file."
        )


def check_words(tokenizer: TextTokenizer, corpus: Corpus) -> None:
    """Refuse a vocabulary without a word, of which nothing could be learnt."""
    if tokenizer.n_words <= UNK_ID + 1:
        raise DataError(
            f"{corpus.name} must have words that the vocabulary takes; got none. "
            "Lower --min-count, or try another --rule."
        )


def resolve(config: RunConfig, corpus: Corpus) -> RunConfig:
    """Settle every option left on auto by what the data is."""
    task = corpus.task if config.train.task == "auto" else config.train.task
    rule = corpus.rule if config.text.rule == "auto" else config.text.rule
    select = config.train.select
    if select == "auto":
        select = "joined" if task == "multi-label" else "accuracy"
    embeddings = config.model.embeddings
    if config.text.vectors is None:
        if embeddings == "static" and config.preset != "released":
            raise ConfigError(
                "embeddings must be random or non-static when no word vectors are "
                "given; got 'static'. Name a file with --vectors."
            )
        embeddings = "random"
    elif embeddings == "random":
        raise ConfigError(
            "embeddings must be static or non-static when word vectors are given; "
            "got 'random'. Leave out --vectors, or set --embeddings."
        )
    return config.replace(
        text={"rule": rule},
        model={"embeddings": embeddings},
        train={"task": task, "select": select},
    )


def build_tokenizer(config: RunConfig, corpus: Corpus) -> TextTokenizer:
    """Learn the vocabulary from the training texts, and add words with a vector."""
    text, extra = config.text, []
    if text.vectors is not None and text.words_from == "vectors":
        extra = words_with_vectors(text.vectors, None)
    elif text.vectors is not None and text.words_from == "corpus":
        others = (example.text for example in [*corpus.dev, *corpus.test])
        seen = TextTokenizer.train(others, rule=text.rule).words
        extra = words_with_vectors(text.vectors, seen)
    return TextTokenizer.train(
        (example.text for example in corpus.train),
        rule=text.rule,
        min_count=text.min_count,
        max_words=text.max_words,
        extra_words=extra,
    )


def build_vectors(
    config: RunConfig, tokenizer: TextTokenizer, train: Encoded
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return a row a word, and how much of the training texts had a vector."""
    padding = "zero" if config.model.mask_padding else "random"
    words, seed, file = tokenizer.words, config.train.seed, config.text.vectors
    if file is None:
        size = config.model.embedding_size
        drawn = random_vectors(words, size, seed=seed, padding=padding)
        return torch.from_numpy(drawn.matrix), {"file": None}
    vectors = load_vectors(file, words, seed=seed, padding=padding)
    ids = np.concatenate([*train.documents, np.zeros(0, dtype=np.int32)])
    counts = np.bincount(ids, minlength=len(words))
    found = {words[row] for row in np.flatnonzero(vectors.is_found)}
    seen = {words[row]: int(counts[row]) for row in np.flatnonzero(counts)}
    shares = coverage(found, seen)
    facts = {"file": Path(file).name, "found": vectors.found, **shares._asdict()}
    log.info("word vectors: %s", facts)
    return torch.from_numpy(vectors.matrix), facts


def target_matrix(
    examples: Sequence[Example], labels: Sequence[str], source: str = "the texts"
) -> NDArray[np.float32]:
    """Return 1 where a text carries a label, (N, J)."""
    column = {label: j for j, label in enumerate(labels)}
    targets = np.zeros((len(examples), len(labels)), dtype=np.float32)
    for row, example in enumerate(examples):
        for label in example.labels:
            if label not in column:
                raise DataError(
                    f"label must be one of {', '.join(labels)}; got {label!r} in row "
                    f"{row + 1} of {source}. Remove such rows, or train on them too."
                )
            targets[row, column[label]] = 1
    return targets


def encode_examples(
    tokenizer: TextTokenizer,
    examples: Sequence[Example],
    labels: Sequence[str],
    max_tokens: int,
    *,
    source: str = "the texts",
) -> Encoded:
    """Return documents and targets of examples."""
    ids = tokenizer.encode([example.text for example in examples], max_tokens)
    return Encoded(drop_unreadable(ids), target_matrix(examples, labels, source))


def fingerprint(corpus: Corpus, tokenizer: TextTokenizer, vectors: torch.Tensor) -> str:
    """Return a checksum of everything a run learns from or chooses on."""
    digest = hashlib.sha256(repr((corpus.labels, tokenizer.words)).encode())
    for example in [*corpus.train, *corpus.dev]:
        digest.update(repr(tuple(example)).encode())
    digest.update(vectors.numpy().tobytes())
    return digest.hexdigest()
