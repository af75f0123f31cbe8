"""Settle every option left on auto by the data; refuse options that contradict."""

from typing import Any

from textcapsules.base.errors import ConfigError
from textcapsules.config import (
    CAPSULES,
    CHARACTERS,
    CLASSIC,
    ENCODER_PRESETS,
    RunConfig,
    preset,
)
from textcapsules.data.catalogue import CATALOGUE
from textcapsules.data.example import Corpus
from textcapsules.model.builder import has_pieces

__all__ = ["resolve"]

# Networks that read any vectors, position by position.
ENCODER_HEADS = ("encoder-linear", "encoder-attention")
ON_STATES = (*CAPSULES, *ENCODER_HEADS, "cnn", "lstm", "bilstm")

# Found on dev: a falling learning rate needs enough steps, so few texts are read more
# often. At least so many epochs and steps (docs/speed.md); on benchmark corpora
# as many as their records were made with (reproduction/FINDINGS.md).
MIN_EPOCHS, ENOUGH_STEPS = 8, 800
CORPUS_MIN_EPOCHS, CORPUS_ENOUGH_STEPS = 12, 1500
# A network on a pretrained encoder learns sooner.
ENCODER_EPOCHS, ENCODER_STEPS = 6, 900
MAX_EPOCHS = 40


def resolve(config: RunConfig, corpus: Corpus) -> RunConfig:
    """Return the options with none left on auto."""
    task = corpus.task if config.train.task == "auto" else config.train.task
    select = config.train.select
    if select == "auto":
        select = "joined" if task == "multi-label" else "accuracy"
    text, embeddings = resolve_text(config, corpus)
    if config.train.contrastive_epochs and config.train.encoder_training == "frozen":
        raise ConfigError(
            f"contrastive_epochs must be 0 unless the encoder learns; got "
            f"{config.train.contrastive_epochs}. Leave out --contrastive-epochs, or "
            "choose --encoder-training light or tuned."
        )
    size = config.model.piece_size
    if size not in (0, preset(config.preset).model.piece_size) and not has_pieces(
        config
    ):
        raise ConfigError(
            "piece_size must be 0 unless capsules stand on an encoder, with dynamic "
            f"routing and --average lengths; got {size}. Leave out --piece-size."
        )
    # A reviewed text may have several labels, or none at all.
    has_several = any(len(example.labels) != 1 for example in corpus.train)
    several = task == "multi-label" or config.train.joined > 0 or has_several
    return config.replace(
        text=text,
        model={"embeddings": embeddings},
        loss={"loss": resolve_loss(config, several)},
        train={
            "task": task,
            "select": select,
            "epochs": resolve_epochs(config, len(corpus.train)),
            "word_scores": resolve_word_scores(config),
        },
    )


def resolve_word_scores(config: RunConfig) -> str:
    """Return what words add; nothing where texts are no sequence of words."""
    asked, architecture = config.train.word_scores, config.model.architecture
    if architecture not in (*CHARACTERS, *CLASSIC, "tree-lstm"):
        return asked
    if asked in ("words", "pairs"):
        raise ConfigError(
            f"word_scores must be none for {architecture}, to which no words can "
            f"be added; got {asked}. Leave out --word-scores."
        )
    return "none"


def resolve_epochs(config: RunConfig, n_texts: int) -> int:
    """Return the maximum number of passes over the texts.

    >>> from textcapsules.config import preset
    >>> run = preset("best").replace(data={"source": "mine.csv"})
    >>> [resolve_epochs(run, n) for n in (100, 1_000, 2_000, 10_000)]
    [40, 20, 10, 8]
    """
    if config.train.epochs is not None:
        return config.train.epochs
    at_least, enough = MIN_EPOCHS, ENOUGH_STEPS
    if config.text.encoder is not None:
        at_least, enough = ENCODER_EPOCHS, ENCODER_STEPS
    elif config.data.source in CATALOGUE:
        at_least, enough = CORPUS_MIN_EPOCHS, CORPUS_ENOUGH_STEPS
    n_steps = -(-n_texts // config.train.batch_size)  # per epoch
    return min(max(at_least, -(-enough // n_steps)), MAX_EPOCHS)


def resolve_text(config: RunConfig, corpus: Corpus) -> tuple[dict[str, Any], str]:
    """Return the options of the text, and of its embeddings."""
    text, architecture = config.text, config.model.architecture
    in_characters = architecture in CHARACTERS
    if (text.rule == "characters") != in_characters and text.rule != "auto":
        wanted = "auto or characters" if in_characters else "a rule of words"
        raise ConfigError(
            f"rule must be {wanted} for the architecture {architecture}; got "
            f"{text.rule!r}. Leave out --rule."
        )
    if in_characters:
        if text.encoder is not None:
            check_encoder(config)
        length = config.baseline.characters or CHARACTERS[architecture]
        text = {"rule": "characters", "max_tokens": length, "vectors": None}
        return {**text, "unknown": "keep"}, "random"
    rule = corpus.rule if text.rule == "auto" else text.rule
    if text.encoder is not None:
        check_encoder(config)
        return {"rule": rule}, "static"
    if (needs := what_needs_encoder(config)) is not None:
        raise ConfigError(
            f"encoder must be given for {needs}; got none. Name one with --encoder."
        )
    if architecture in CLASSIC:  # they read no word vectors, even if some are given
        return {"rule": rule, "vectors": None}, "random"
    settled = {
        "rule": rule,
        "words_from": resolve_words(config),
        # A tree needs all words of its text.
        "unknown": "keep" if architecture == "tree-lstm" else text.unknown,
    }
    return settled, resolve_embeddings(config)


def what_needs_encoder(config: RunConfig) -> str | None:
    """Return the choice that means nothing without a pretrained encoder, if any."""
    if config.preset in ENCODER_PRESETS:
        return f"the preset {config.preset}"
    if config.model.architecture in ENCODER_HEADS:
        return f"the architecture {config.model.architecture}"
    if config.train.encoder_training != "frozen":
        return f"--encoder-training {config.train.encoder_training}"
    return None


def check_encoder(config: RunConfig) -> None:
    """Refuse what cannot stand on a pretrained encoder's states."""
    if config.text.vectors is not None:
        raise ConfigError(
            f"vectors must be left out where an encoder reads the texts; got "
            f"{config.text.vectors!r}. Choose --vectors or --encoder."
        )
    if config.model.architecture not in ON_STATES:
        names = ", ".join(ON_STATES)
        raise ConfigError(
            f"architecture must be one of {names} on an encoder; got "
            f"{config.model.architecture!r}. Leave out --encoder, or choose another."
        )
    learning = config.train.encoder_training
    if learning != "frozen" and not config.text.embed_encoder:
        raise ConfigError(
            f"embed_encoder must be true with --encoder-training {learning}, since the "
            "model alone has what the encoder learns; got false. Leave out "
            "--no-embed-encoder."
        )
    if not config.model.mask_padding:
        raise ConfigError(
            f"preset must be one that leaves padding out on an encoder; got "
            f"{config.preset!r}. Choose another preset."
        )


def resolve_words(config: RunConfig) -> str:
    """Return which words are known; on benchmarks, as in published experiments."""
    if config.text.words_from != "auto":
        return config.text.words_from
    return "corpus" if config.data.source in CATALOGUE else "vectors"


def resolve_embeddings(config: RunConfig) -> str:
    """Return whether word vectors are random, static or non-static."""
    embeddings = config.model.embeddings
    if config.text.vectors is None:
        if embeddings == "static" and config.preset != "released":
            raise ConfigError(
                "embeddings must be random or non-static when no word vectors are "
                "given; got 'static'. Name a file with --vectors."
            )
        return "random"
    if embeddings == "random":
        raise ConfigError(
            "embeddings must be static or non-static when word vectors are given; "
            "got 'random'. Leave out --vectors, or set --embeddings."
        )
    return embeddings


def resolve_loss(config: RunConfig, several: bool) -> str:
    """Return the loss: margin for lengths, one of the cross-entropies for logits."""
    loss = config.loss.loss
    if loss != "auto":
        return loss
    if config.model.architecture in CAPSULES:
        attends = config.model.routing == "attention"
        return "binary-cross-entropy" if attends else "margin"
    return "binary-cross-entropy" if several else "cross-entropy"
