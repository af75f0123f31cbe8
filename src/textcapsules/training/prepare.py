"""From options to all that training needs: corpus, vocabulary, vectors, documents.

A corpus from which nothing can be learnt is refused. One from which a label can hardly
be learnt causes a warning (`data_warnings`), which goes to stderr and into the run's
record, as `warnings` of training.json.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.base.errors import DataError, warn
from textcapsules.config import CHARACTERS, CLASSIC, RunConfig
from textcapsules.data.example import Corpus, Example
from textcapsules.data.load import likely_separator, load_corpus
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.builder import System, build_system, has_pieces
from textcapsules.model.classifier import pick_device
from textcapsules.model.network import word_embedding
from textcapsules.text.encode import Cuts, Encoder, word_ids
from textcapsules.text.encoder import (
    EncoderEmbedding,
    PretrainedEncoder,
    load_encoder,
)
from textcapsules.text.encoder_training import LearningEncoder
from textcapsules.text.lexicon import word_classes
from textcapsules.text.piece_vectors import PieceVectors, known_pieces
from textcapsules.text.pieces import FIRST_PIECE, PieceTokenizer
from textcapsules.text.vectors import (
    Coverage,
    Vectors,
    coverage,
    load_vectors,
    other_words,
    random_vectors,
    words_with_vectors,
)
from textcapsules.text.vocabulary import UNK_ID, TextTokenizer
from textcapsules.training.calibrate import UNCALIBRATED
from textcapsules.training.encoder_choice import settle_encoder
from textcapsules.training.machine import check_memory, device_memory
from textcapsules.training.resolve import resolve

__all__ = [
    "FEW_TEXTS",
    "Encoded",
    "Prepared",
    "data_warnings",
    "encode_examples",
    "prepare",
    "target_matrix",
]

FEW_TEXTS = 10  # a label with fewer training texts causes a warning
MAX_NAMED = 5  # labels named in one message

log = logging.getLogger(__name__)


class Encoded(NamedTuple):
    """Texts as word numbers, and their labels as a 0/1 matrix (N, J)."""

    documents: list[NDArray[np.int32]]
    targets: NDArray[np.float32]


class Prepared(NamedTuple):
    """All that training reads, and the facts that the run's record holds."""

    config: RunConfig  # no option is left on auto
    corpus: Corpus
    tokenizer: TextTokenizer | PieceTokenizer
    network: System
    train: Encoded
    dev: Encoded
    facts: dict[str, Any]

    @property
    def n_pieces(self) -> int | None:
        """Return an encoder's vocabulary where it reads sentences by themselves."""
        tokenizer = self.tokenizer
        return tokenizer.n_marked if isinstance(tokenizer, PieceTokenizer) else None


def prepare(
    config: RunConfig,
    corpus: Corpus | None = None,
    on_encoder: RunConfig | None = None,
) -> Prepared:
    """Build the vocabulary and a fresh network, which follow from the seeds.

    The corpus is read as the options say, unless it is given. `on_encoder` is for a run
    whose encoder the texts decide about (`settle_encoder`).
    """
    if corpus is None:
        corpus = load_corpus(config.data)
    check_corpus(corpus)
    texts = [example.text for example in corpus.train]
    device = pick_device(config.train.device)
    config, choice = settle_encoder(config, texts, device, on_encoder)
    config = resolve(config, corpus)
    pretrained = None
    if config.text.encoder is not None:
        pretrained = load_encoder(config.text.encoder)
        config = config.replace(model={"embedding_size": pretrained.states.size})
        tokenizer = pretrained.tokenizer.cut_by(config.text.encode_by)
        n_trained = FIRST_PIECE
    else:
        tokenizer, n_trained = build_tokenizer(config, corpus)
    reader = Encoder(config, tokenizer, keep_parses=True)
    train, train_cuts = encode_examples(reader, corpus.train, corpus.labels, learn=True)
    source = config.data.dev or "the dev texts"
    dev, dev_cuts = encode_examples(reader, corpus.dev, corpus.labels, source=source)
    check_memory(config, n_trained, len(corpus.labels))
    words = tokenizer.words[:n_trained], tokenizer.words[n_trained:]
    if pretrained is not None:
        vectors, extra = None, None
        vector_facts = {"file": None, **pretrained.facts, **how_trained(config)}
    else:
        vectors, extra, vector_facts = build_vectors(config, *words, train)
    if vectors is not None:
        config = config.replace(model={"embedding_size": vectors.shape[1]})
    encoder = None if pretrained is None else encoder_for(config, pretrained, train)
    torch.manual_seed(config.train.seed)
    network = build_system(
        config,
        n_words=n_trained,
        n_classes=len(corpus.labels),
        vectors=vectors,
        extra=extra,
        word_classes=sentiment_classes(config, words[0]),
        encoder=encoder,
    )
    embedding = word_embedding(network)
    if embedding is not None:
        embedding.extra_in_training = any(  # such as words rarer than min_count
            (word_ids(ids) >= n_trained).any() for ids in train.documents
        )
    cuts = train_cuts.plus(dev_cuts)
    for message in [*data_warnings(corpus), cuts.line(config)]:
        if message:
            warn(message)
    facts = {
        "corpus": corpus.facts,
        "texts": {"train": len(corpus.train), "dev": len(corpus.dev)},
        "fingerprint": fingerprint(corpus, tokenizer, vector_facts, vectors, extra),
        "words": tokenizer.n_words,
        "vectors": vector_facts,
        "parameters": n_parameters(network),
        "cut": cuts.to_dict(config.text.max_tokens),
        **({} if choice is None else {"encoder_choice": choice._asdict()}),
    }
    return Prepared(config, corpus, tokenizer, network, train, dev, facts)


def encoder_for(
    config: RunConfig, pretrained: PretrainedEncoder, texts: Encoded
) -> EncoderEmbedding:
    """Return the encoder, frozen or with the layers that are to learn.

    Beside its states are vectors of the texts' pieces, if they are asked for.
    """
    train, states, pieces = config.train, pretrained.states, None
    if has_pieces(config):
        torch.manual_seed(train.seed)
        rows = known_pieces(texts.documents, states.n_pieces)
        pieces = PieceVectors(rows, size=config.model.piece_size)
    if train.encoder_training == "frozen":
        return EncoderEmbedding(states, pieces)
    return LearningEncoder(
        states,
        pieces,
        n_layers=train.encoder_layers if train.encoder_training == "light" else None,
        whole_texts=config.text.encode_by == "texts",
        memory=device_memory(pick_device(train.device)),
    )


def how_trained(config: RunConfig) -> dict[str, Any]:
    """Return what the run's record says about the training of the encoder."""
    train = config.train
    facts: dict[str, Any] = {"training": train.encoder_training}
    if train.encoder_training == "light":
        facts["layers"] = train.encoder_layers
    if train.encoder_training != "frozen":
        facts |= {"rate": train.encoder_rate, "decay": train.encoder_decay}
    if train.contrastive_epochs:
        facts["contrastive_epochs"] = train.contrastive_epochs
    return facts


def sentiment_classes(config: RunConfig, words: list[str]) -> torch.Tensor | None:
    """Return the kinds of words that the lr-lstm needs; its weights hold them too."""
    if config.model.architecture != "lr-lstm":
        return None
    return torch.from_numpy(word_classes(words))


def n_parameters(network: System) -> int | None:
    """Return how many numbers training sets; None for a system not yet fitted."""
    if isinstance(network, ClassicSystem):
        return None
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def check_corpus(corpus: Corpus) -> None:
    """Refuse a corpus that no classifier can learn from."""
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
    """Refuse a vocabulary without a word."""
    if tokenizer.n_words <= UNK_ID + 1:
        raise DataError(
            f"{corpus.name} must have words that the vocabulary takes; got none. "
            "Lower --min-count, or try another --rule."
        )


def build_tokenizer(config: RunConfig, corpus: Corpus) -> tuple[TextTokenizer, int]:
    """Return the vocabulary of the training texts, extended by words with a vector.

    The number says how many words have trained vectors; these words come first.
    """
    text, extra = config.text, []
    if text.vectors is not None and text.words_from == "corpus":
        others = (example.text for example in [*corpus.dev, *corpus.test])
        seen = TextTokenizer.train(others, rule=text.rule).words
        extra = words_with_vectors(text.vectors, seen)
    tokenizer = TextTokenizer.train(
        (example.text for example in corpus.train),
        rule=text.rule,
        min_count=text.min_count,
        max_words=text.max_words,
        extra_words=extra,
    )
    check_words(tokenizer, corpus)
    n_trained = tokenizer.n_words
    if text.vectors is not None and text.words_from == "vectors":
        further, left_out = other_words(
            text.vectors,
            tokenizer.words,
            limit=text.vector_words,
            is_token=tokenizer.is_token,
        )
        tokenizer = tokenizer.with_words(further)
        if left_out:
            log.warning(
                "%s of the words in %s are left out and unknown, beyond the first %s; "
                "--vector-words sets how many are known.",
                f"{left_out:,}",
                Path(text.vectors).name,
                f"{text.vector_words:,}",
            )
    return tokenizer, n_trained


def build_vectors(
    config: RunConfig, words: list[str], extra_words: list[str], train: Encoded
) -> tuple[torch.Tensor | None, torch.Tensor | None, dict[str, Any]]:
    """Return the trained vectors, the fixed ones, and facts about them.

    Networks over characters and classic systems have neither.
    """
    if config.model.architecture in (*CHARACTERS, *CLASSIC):
        return None, None, {"file": None}
    padding = "zero" if config.model.mask_padding else "random"
    seed, file = config.train.seed, config.text.vectors
    if file is None:
        size = config.model.embedding_size
        drawn = random_vectors(words, size, seed=seed, padding=padding)
        return torch.from_numpy(drawn.matrix), None, {"file": None}
    vectors = load_vectors(file, words, extra_words, seed=seed, padding=padding)
    facts = {"file": Path(file).name, "found": vectors.n_found}
    facts |= vector_coverage(vectors, [*words, *extra_words], train)
    extra = None
    if extra_words:
        facts["extra"], extra = len(extra_words), torch.from_numpy(vectors.extra)
    log.info("word vectors: %s", facts)
    return torch.from_numpy(vectors.matrix), extra, facts


def vector_coverage(
    vectors: Vectors, words: list[str], train: Encoded
) -> dict[str, float]:
    """Return the shares of the training texts' words that have a vector.

    The keys `real_...` count only vectors that the file does not mark as estimates;
    they are left out if the file marks none.
    """
    ids = np.concatenate([np.zeros(0, np.int32), *map(word_ids, train.documents)])
    counts = np.bincount(ids, minlength=len(words))
    seen = {words[row]: int(counts[row]) for row in np.flatnonzero(counts)}

    def shares(rows: NDArray) -> Coverage:
        return coverage({words[row] for row in np.flatnonzero(rows)}, seen)

    covered = shares(vectors.is_found)._asdict()
    if vectors.is_real is None:
        return covered
    real = shares(vectors.is_real)._asdict()
    return covered | {f"real_{name}": share for name, share in real.items()}


def target_matrix(
    examples: Sequence[Example], labels: Sequence[str], source: str = "the texts"
) -> NDArray[np.float32]:
    """Return 1 where a text has a label, (N, J)."""
    column = {label: j for j, label in enumerate(labels)}
    targets = np.zeros((len(examples), len(labels)), dtype=np.float32)
    for row, example in enumerate(examples):
        for label in example.labels:
            if label not in column:
                separator = likely_separator([*labels, label])
                named = "" if separator is None else f" {separator!r}"
                raise DataError(
                    f"label must be one of {', '.join(labels)}; got {label!r} in row "
                    f"{row + 1} of {source}. Remove such rows, or train on them too; "
                    f"several labels in one cell need --separator{named}."
                )
            targets[row, column[label]] = 1
    return targets


def encode_examples(
    encoder: Encoder,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    source: str = "the texts",
    learn: bool = False,
) -> tuple[Encoded, Cuts]:
    """Return documents and targets of examples, and how much of the texts was cut.

    With `learn`, a document may also hold the labels of its parts, if they are known.
    """
    targets = target_matrix(examples, labels, source)
    texts = [example.text for example in examples]
    documents, _, cuts = encoder.encode_counted(texts, labels if learn else ())
    return Encoded(documents, targets), cuts


def fingerprint(
    corpus: Corpus,
    tokenizer: TextTokenizer | PieceTokenizer,
    facts: dict[str, Any],
    *vectors: torch.Tensor | None,
) -> str:
    """Return a checksum of all data that a run learns from or is selected on."""
    digest = hashlib.sha256(repr((corpus.labels, tokenizer.words)).encode())
    for example in [*corpus.train, *corpus.dev]:
        digest.update(repr(tuple(example)).encode())
    if "encoder" in facts:
        digest.update(repr(facts["sha256"]).encode())
    for matrix in vectors:
        if matrix is not None:
            digest.update(matrix.numpy().tobytes())
    return digest.hexdigest()


def data_warnings(corpus: Corpus) -> list[str]:
    """Return one message per kind of shortage; an empty list if there is none."""
    train, dev, test = map(count_labels, (corpus.train, corpus.dev, corpus.test))
    labels = sorted({*corpus.labels, *test})
    unseen = [label for label in labels if not train[label]]
    few = [label for label in labels if 0 < train[label] < FEW_TEXTS]
    few.sort(key=lambda label: train[label])  # the rarest first
    messages = []
    if unseen:
        counts = name_some(
            f"{label!r} ({dev[label]} dev, {test[label]} test)" for label in unseen
        )
        messages.append(
            f"{count_of(unseen)} no training text and cannot be learnt: {counts}. Add "
            "texts, or remove the label."
        )
    if few:
        counts = name_some(f"{label!r} ({train[label]})" for label in few)
        messages.append(
            f"{count_of(few)} fewer than {FEW_TEXTS} training texts: {counts}. Expect "
            "little of such labels; add texts if you can."
        )
    if len(dev) < 2:
        messages.append(
            f"the dev set has {len(corpus.dev)} {plural(len(corpus.dev), 'text')} of "
            f"{len(dev)} {plural(len(dev), 'label')}: the threshold stays at "
            f"{UNCALIBRATED}, uncalibrated. Add texts, or raise --dev-fraction."
        )
    return messages


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """Return how many texts have each label."""
    return Counter(label for example in examples for label in set(example.labels))


def count_of(labels: list[str]) -> str:
    """Return the start of a sentence about some labels."""
    return f"{len(labels):,} {'label has' if len(labels) == 1 else 'labels have'}"


def plural(n: int, noun: str) -> str:
    """Return a noun in the form that a number asks for."""
    return noun if n == 1 else f"{noun}s"


def name_some(labels: Iterable[str]) -> str:
    """Return the first few, and how many more there are.

    >>> name_some("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    names = list(labels)
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
