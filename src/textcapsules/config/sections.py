"""The options by concern, each declared once with its default and its help text."""

from dataclasses import dataclass
from typing import Literal

from textcapsules.config.options import Checked, option

__all__ = [
    "CAPSULES",
    "CHARACTERS",
    "CLASSIC",
    "SECTIONS",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
    "RivalConfig",
    "TextConfig",
    "TrainConfig",
]

LARGEST_SEED = 2**32 - 1  # what every library here takes

CAPSULES = ("capsule-a", "capsule-b")
# Networks that read characters, and how many of them, as published.
CHARACTERS = {"cl-cnn": 1014, "vd-cnn": 1024}
# Systems that are fitted at once rather than trained by gradient.
CLASSIC = ("tfidf-svm", "tfidf-lr", "fasttext")


@dataclass(frozen=True, kw_only=True)
class DataConfig(Checked):
    """Where the texts come from."""

    source: str = option(
        "tickets", "A corpus of the catalogue, or a file of texts", common=True
    )
    data_dir: str | None = option(None, "Folder of corpora (or TEXTCAPSULES_DATA)")
    fold: int = option(
        0, "Which tenth is the test set, if none is given", low=0, high=9
    )
    text_column: str = option("text", "Name of the file's text column", common=True)
    label_column: str = option("label", "Name of the file's label column", common=True)
    separator: str | None = option(
        None, "What parts several labels in one cell", common=True
    )
    delimiter: str | None = option(
        None,
        "Character between the cells of a CSV or TSV file, as ; or | (a tab is \\t); "
        "none: found in a CSV file's first lines",
    )
    encoding: str | None = option(
        None,
        "Encoding of a file of text, as latin-1 or utf-16; none: UTF-8, or what a byte "
        "order mark says",
    )
    skip_empty: bool = option(
        False, "Leave out rows of a file that have no text or no label"
    )
    dev: str | None = option(None, "A file of development texts", common=True)
    test: str | None = option(None, "A file of test texts", common=True)
    dev_fraction: float = option(
        0.1,
        "Share of the training texts held out if no dev set is given",
        above=0.0,
        below=1.0,
    )
    split_seed: int = option(
        0, "Seed of the splits, apart from training's", low=0, high=LARGEST_SEED
    )


@dataclass(frozen=True, kw_only=True)
class TextConfig(Checked):
    """How texts become numbers."""

    rule: Literal["auto", "kim", "reuters", "words", "characters"] = option(
        "auto",
        "Tokenisation; auto takes the corpus's own, `words` for a user's file, "
        "`characters` for the networks that read those",
    )
    min_count: int = option(1, "Words rarer than this are unknown", low=1)
    max_words: int = option(
        200_000, "Size of the vocabulary, most frequent first", low=1
    )
    max_tokens: int = option(
        200,
        "Tokens read of a text; the rest is cut (cl-cnn and vd-cnn: see --characters)",
        low=1,
        common=True,
    )
    unknown: Literal["keep", "drop"] = option(
        "keep",
        "Words outside the vocabulary: keep them, with one vector for all, or drop "
        "them before the network reads the text (in preset best; tree-lstm and "
        "networks over characters always keep them)",
    )
    vectors: str | None = option(
        None, "Word vectors: .npz, word2vec .bin/.txt, GloVe", common=True
    )
    words_from: Literal["auto", "train", "corpus", "vectors"] = option(
        "auto",
        "Words known besides those of the training texts: none (train), all that have "
        "a vector, which stays fixed (vectors), or those of the dev and test texts "
        "that have one, by a row like the training words' (corpus; Kim's habit, labels "
        "unused); auto: corpus for the benchmark corpora, else vectors",
    )
    vector_words: int = option(
        130_000,
        "Most words known by a fixed vector alone (see --words-from vectors): the "
        "first of the file",
        low=0,
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The network, in the paper's symbols where it has one."""

    architecture: Literal[
        "capsule-a",
        "capsule-b",
        "lstm",
        "bilstm",
        "tree-lstm",
        "lr-lstm",
        "cnn",
        "cl-cnn",
        "vd-cnn",
        "tfidf-svm",
        "tfidf-lr",
        "fasttext",
    ] = option(
        "capsule-b",
        "capsule-a: one n-gram size; capsule-b: several, averaged; the others are the "
        "systems compared with",
        common=True,
    )
    ngram_sizes: tuple[int, ...] = option(
        (3, 4, 5),
        "K1, one network each (or see --joint); capsule-a takes the first; windows of "
        "the cnn",
        low=1,
        high=1000,
    )
    joint: bool = option(
        False,
        "N-grams of all sizes side by side at every position, in one network instead "
        "of one for each size",
    )
    embeddings: Literal["random", "static", "non-static"] = option(
        "non-static", "Word vectors: drawn, fixed, or trained on ('to initialize')"
    )
    embedding_size: int = option(
        300, "V; the size of the vectors where they are given", low=1
    )
    filters: int = option(32, "B, filters of the n-gram convolution", low=1)
    stride: int = option(
        1, "Step of the n-gram convolution over words", low=1, high=1000
    )
    edges: bool = option(
        False, "N-grams may reach over a text's ends, onto zero vectors (also cnn)"
    )
    capsule_types: int = option(32, "C, primary capsules at each position", low=1)
    capsule_size: int = option(16, "d, size of every capsule's pose", low=1)
    conv_capsules: bool = option(
        True, "Keep the convolutional capsule layer (off: the visualisation model)"
    )
    conv_window: int = option(
        3, "K2, positions a convolutional capsule sees", low=1, high=1000
    )
    conv_types: int = option(16, "D, convolutional capsules at each position", low=1)
    shared: bool = option(True, "One transform per parent, shared by all its children")
    transform_bias: bool = option(True, "Votes have a bias")
    routing: Literal["dynamic", "attention"] = option(
        "dynamic",
        "How classes are routed to: by agreement (the paper's), or by attention, each "
        "class asking from a learnt query; attention knows no amendment, squash, "
        "normalise or shared",
    )
    iterations: int = option(3, "Iterations of routing", low=1, high=1000)
    leaky: bool = option(True, "Leaky softmax: a child may route to nobody")
    compete: bool = option(
        True,
        "What a child gives one parent it takes from the others, by a softmax; off: a "
        "sigmoid for each parent, for comparison (plain code alone)",
    )
    amendment: bool = option(True, "Couplings are scaled by the child's length")
    normalise: Literal["none", "total"] = option(
        "none",
        "Weights of the children, their lengths if amended: as they are (the paper's), "
        "or divided by their sum over the text, so that a long text counts like a "
        "short one",
    )
    routing_gain: float = option(
        20.0, "What normalised weights sum to in place of 1, before training", above=0.0
    )
    learn_gain: bool = option(True, "That sum is learnt")
    orphan: bool = option(True, "A further parent for background, hidden from results")
    squash: Literal["norm", "sabour", "released", "exp", "tanh", "none"] = option(
        "norm", "Length of a squashed pose as a function of its norm"
    )
    average: Literal["lengths", "poses"] = option(
        "lengths", "What capsule-b averages over its n-gram networks"
    )
    mask_padding: bool = option(
        True,
        "Padding never votes; off: every text is padded to max_tokens, as released",
    )
    initialiser: Literal["xavier", "tensorflow"] = option(
        "xavier", "Xavier-uniform, with fans counted for each map or as TensorFlow does"
    )
    dropout: float = option(
        0.0, "Share of word-vector entries dropped", low=0.0, below=1.0
    )
    word_dropout: float = option(
        0.0, "Share of words whose whole vector is dropped", low=0.0, below=1.0
    )
    feature_dropout: float = option(
        0.0,
        "Share of n-gram features dropped before the primary capsules",
        low=0.0,
        below=1.0,
    )
    capsule_dropout: float = option(
        0.0, "Share of capsules dropped before each routed layer", low=0.0, below=1.0
    )
    transform_gain: float = option(
        1.0, "Factor on the first values of the transforms", above=0.0
    )


@dataclass(frozen=True, kw_only=True)
class RivalConfig(Checked):
    """The systems compared with; each reads its own few of these."""

    hidden_size: int = option(150, "LSTMs: size of a state, each direction", low=1)
    pooling: Literal["last", "mean", "max"] = option(
        "last", "lstm, bilstm: which states of the words speak for the text"
    )
    tree_kind: Literal["child-sum", "n-ary"] = option(
        "child-sum", "tree-lstm: over dependency trees, or SST's own binary ones"
    )
    regulariser_weight: float = option(
        0.5, "lr-lstm: alpha, weight of the linguistic regularisers", low=0.0
    )
    regulariser_margin: float = option(
        0.5, "lr-lstm: M, divergence between neighbours that costs nothing", low=0.0
    )
    feature_maps: int = option(100, "cnn: filters of each n-gram size", low=1)
    max_norm: float = option(
        3.0, "cnn: longest weight vector of a class (0: any)", low=0.0
    )
    output_dropout: float = option(
        0.5, "Share of features dropped before the output layer", low=0.0, below=1.0
    )
    characters: int | None = option(
        None,
        "cl-cnn, vd-cnn: characters read of a text, which is padded to as many; none: "
        "as published, 1014 and 1024",
        low=123,
    )
    cl_cnn_size: Literal["small", "large"] = option(
        "small", "cl-cnn: 256 features and 1024 units, or 1024 and 2048"
    )
    vd_cnn_depth: Literal[9, 17, 29] = option(
        9,
        "vd-cnn: convolutional layers (with --learning-rate 0.0003: at 0.001 it mostly "
        "fails to begin)",
    )
    tfidf_c: float = option(
        1.0, "tfidf-svm, tfidf-lr: C, inverse of the regularisation", above=0.0
    )
    fasttext_epochs: int = option(
        25, "fasttext: passes over the texts", low=1, high=1_000_000
    )
    fasttext_rate: float = option(0.5, "fasttext: learning rate", above=0.0)
    fasttext_ngrams: int = option(2, "fasttext: longest word n-gram", low=1, high=100)
    fasttext_size: int = option(
        10, "fasttext: size of the word vectors", low=1, high=10_000
    )


@dataclass(frozen=True, kw_only=True)
class LossConfig(Checked):
    """What training minimises."""

    loss: Literal[
        "auto", "margin", "spread", "cross-entropy", "binary-cross-entropy", "entropy"
    ] = option(
        "auto",
        "Kind of loss; auto: margin for lengths, cross-entropy for logits, binary "
        "where a text may have several labels; entropy: labels not given are unknown, "
        "not absent",
    )
    m_plus: float = option(0.9, "Margin loss: length asked of a true class", low=0.0)
    m_minus: float = option(0.1, "Margin loss: length allowed to others", low=0.0)
    down_weight: float = option(
        0.5, "Margin loss: lambda, weight of the others", low=0.0
    )
    absent_weight: float = option(
        1.0,
        "Margin loss and binary cross-entropy: weight of labels that a text is not "
        "given, on top of lambda (below 1 where some of them may be true)",
        low=0.0,
    )
    entropy_weight: float = option(
        0.1,
        "Entropy loss: alpha, how strongly labels not given are held at undecided "
        "(raise it where every label comes out as true)",
        low=0.0,
    )
    spread_start: float = option(0.2, "Spread loss: margin in the first epoch", low=0.0)
    spread_end: float = option(0.9, "Spread loss: margin in the end", low=0.0)
    spread_epochs: int = option(10, "Spread loss: epochs from start to end", low=1)
    orphan_in_loss: bool = option(False, "The orphan counts as a class never present")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """The training loop, and what is chosen on the development set."""

    task: Literal["auto", "single-label", "multi-label"] = option(
        "auto",
        "One label a text, or all it deserves; auto follows the data",
        common=True,
    )
    start_length: float = option(
        0.0,
        "Mean length that capsules of every layer are scaled to before training, on "
        "some training texts (0: as they are drawn)",
        low=0.0,
        below=1.0,
    )
    epochs: int | None = option(
        20,
        "Passes over the training texts, at most (in preset best 12, or where texts "
        "are few as many as make 1,500 steps, up to 40)",
        low=1,
        high=1_000_000,
        common=True,
    )
    batch_size: int = option(25, "Texts in a batch", low=1, high=1_000_000, common=True)
    learning_rate: float = option(1e-3, "Adam's step", above=0.0, common=True)
    vector_rate: float = option(
        1.0,
        "Adam's step for word vectors read from a file, as a share of the others'",
        low=0.0,
    )
    rate_decay: float = option(1.0, "Factor on the learning rate, an epoch", low=0.0)
    schedule: Literal["constant", "linear", "cosine"] = option(
        "constant",
        "How the learning rate falls from step to step, to nearly zero at the end of "
        "all epochs: not at all, along a line, or along half a cosine",
    )
    warmup: float = option(
        0.0,
        "Share of all steps over which the learning rate first rises from nearly zero "
        "(0: none)",
        low=0.0,
        below=1.0,
    )
    weight_decay: float = option(
        0.0,
        "AdamW's decay: every step shrinks the weights by this times the learning "
        "rate, but for word vectors, biases and gains (0: Adam, without decay)",
        low=0.0,
    )
    average_weights: float = option(
        0.0,
        "Share of the past in a running average of the weights, per step; the average "
        "is judged on dev and kept (0: the weights themselves; 0.999 averages over "
        "about the last 1,000 steps)",
        low=0.0,
        below=1.0,
    )
    clip_norm: float = option(0.0, "Longest gradient allowed (0: any)", low=0.0)
    patience: int = option(
        0,
        "Epochs without a better dev score to stop (0: never), counted once dev "
        "accuracy is above what the commonest label alone reaches",
        low=0,
        common=True,
    )
    select: Literal["auto", "accuracy", "joined", "last"] = option(
        "auto",
        "Which epoch is kept: best dev accuracy, best exact match on the documents of "
        "--calibrate-on (joined; auto for multi-label), or the last",
    )
    joined: float = option(
        0.0,
        "Training texts made by joining two, per single one, drawn each epoch",
        low=0.0,
        high=100.0,
    )
    joined_share: float = option(
        1.0,
        "Least part kept of one of two joined texts, the other being whole (1: both "
        "are), in training and on dev",
        above=0.0,
        high=1.0,
    )
    joined_by: Literal["texts", "labels"] = option(
        "texts",
        "How joined texts are drawn, in training and on dev: every text as often as "
        "any other, or every label",
    )
    threshold_for: Literal["exact-match", "micro-f1"] = option(
        "exact-match",
        "What the calibrated thresholds make best on the documents of --calibrate-on",
    )
    calibrate_on: Literal["joined", "single+joined"] = option(
        "single+joined",
        "Documents that thresholds, and the epoch with --select joined, are chosen on: "
        "pairs of dev texts joined, or the single dev texts and as many such pairs; "
        "dev texts of which some have several labels are taken as they are",
    )
    thresholds: Literal["one", "per-label"] = option(
        "one",
        "One threshold for all labels, or one per label, which lies near the common "
        "one for a label with few dev texts (some 20 bring it half way to its own)",
        common=True,
    )
    checkpoint_seconds: float = option(
        10.0, "Least time between checkpoints (0: one after every epoch)", low=0.0
    )
    seed: int = option(
        0,
        "Seed of weights, order, dropout and joined texts",
        low=0,
        high=LARGEST_SEED,
        common=True,
    )
    device: str = option("auto", "auto, cpu, cuda or cuda:N", common=True)
    precision: Literal["ieee", "tf32", "tf32x3", "bf16"] = option(
        "ieee",
        "Products on a GPU: whole float32, tensor cores on 10 bits or on three such "
        "parts, or what is routed stored in 16 bits",
    )


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "text": TextConfig,
    "model": ModelConfig,
    "rival": RivalConfig,
    "loss": LossConfig,
    "train": TrainConfig,
}
