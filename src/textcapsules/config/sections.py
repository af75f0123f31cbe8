"""The options by section, each declared once with its default and its help text.

The help texts are what `textcapsules train --help` prints, before the choices and the
default: what the option does, in which unit, and when to change it; no full stop at
the end.
"""

from dataclasses import dataclass
from typing import Literal

from textcapsules.config.options import Checked, option

__all__ = [
    "CAPSULES",
    "CHARACTERS",
    "CLASSIC",
    "SECTIONS",
    "BaselineConfig",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
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
        "tickets",
        "Texts with labels: a .csv, .tsv, .jsonl or .parquet file, or a corpus "
        "of `textcapsules data list`",
        common=True,
    )
    data_dir: str | None = option(
        None,
        "Folder of the benchmark corpora; none: the folder that the variable "
        "TEXTCAPSULES_DATA names, or else the cache",
    )
    fold: int = option(
        0,
        "Which of ten folds is the test set, for a corpus that comes without one",
        low=0,
        high=9,
    )
    text_column: str = option(
        "text", "Column of the file that holds the texts", common=True
    )
    label_column: str = option(
        "label", "Column of the file that holds the labels", common=True
    )
    separator: str | None = option(
        None,
        "Character between several labels in one cell, such as ; or |; none: a "
        "cell is one label",
        common=True,
    )
    delimiter: str | None = option(
        None,
        "Character between the cells of a CSV or TSV file, such as ; or | (\\t for "
        "a tab); none: a tab in TSV files, and in CSV files what their first lines "
        "use",
    )
    encoding: str | None = option(
        None,
        "Encoding of the file, such as latin-1 or utf-16; none: UTF-8, or what the "
        "file's byte order mark says",
    )
    skip_empty: bool = option(
        False,
        "Leave out rows without a text or without a label, instead of stopping "
        "with an error",
    )
    dev: str | None = option(
        None,
        "File of development texts, on which the best epoch and the thresholds are "
        "chosen; none: some training texts are held out for it (see "
        "--dev-fraction)",
        common=True,
    )
    test: str | None = option(
        None, "File of test texts, on which nothing is chosen", common=True
    )
    add: str | None = option(
        None,
        "File of reviewed texts with all their labels, as `textcapsules review` "
        "writes it, to train on as well; a text that --data has too gets the reviewed "
        "labels",
        common=True,
    )
    dev_fraction: float = option(
        0.1,
        "Share of the training texts held out for development when there is no "
        "--dev file",
        above=0.0,
        below=1.0,
    )
    split_seed: int = option(
        0,
        "Seed of the folds and of the held-out texts. Keep it when you change "
        "--seed, so that runs train on the same texts",
        low=0,
        high=LARGEST_SEED,
    )


@dataclass(frozen=True, kw_only=True)
class TextConfig(Checked):
    """How texts become numbers."""

    rule: Literal["auto", "kim", "reuters", "words", "characters"] = option(
        "auto",
        "How texts are cut into words. auto: `words` for your own file, the usual "
        "rule of a benchmark corpus, `characters` for cl-cnn and vd-cnn",
    )
    min_count: int = option(
        1,
        "Times a word must occur in the training texts to be in the vocabulary. "
        "Raise it to leave out rare words and typing errors",
        low=1,
    )
    max_words: int = option(
        200_000,
        "Maximum number of words in the vocabulary; the most frequent are kept",
        low=1,
    )
    max_tokens: int = option(
        200,
        "Maximum number of words and punctuation marks read per text; the rest is "
        "cut off. Raise it for long texts: time and memory grow with it (cl-cnn "
        "and vd-cnn: see --characters)",
        low=1,
        common=True,
    )
    unknown: Literal["keep", "drop", "nearest"] = option(
        "keep",
        "What to do with words outside the vocabulary. keep: one vector for all; "
        "drop: leave them out; nearest: read a word of five letters or more as the "
        "known word that one typing error makes of it, and drop the others "
        "(tree-lstm, cl-cnn and vd-cnn always keep them)",
    )
    vectors: str | None = option(
        None,
        "File of pretrained word vectors: .npz, word2vec .bin or .txt, or GloVe; "
        "none: vectors start at random",
        common=True,
    )
    encoder: str | None = option(
        None,
        "Pretrained encoder whose states replace word vectors: a folder with "
        "config.json, tokenizer.json and safetensors, a name of the Hugging Face hub "
        "such as thenlper/gte-small, or all-MiniLM-L6-v2 if its package is installed. "
        "auto: the installed one if it knows the language of the texts and can read "
        "them in minutes; none: words alone. An encoder reads a text sentence by "
        "sentence; see --encoder-training",
        common=True,
    )
    embed_encoder: bool = option(
        True,
        "Keep a copy of the encoder in the model folder. Without it, the folder holds "
        "its name, revision and checksums only, and whoever loads the model needs the "
        "same encoder; possible with --encoder-training frozen",
    )
    encode_by: Literal["sentences", "clauses", "texts"] = option(
        "sentences",
        "What an encoder reads at once: whole sentences, the clauses between which "
        "there is a comma and an English word such as *and* or *but*, or whole texts. "
        "What is read at once is mixed: two topics in one sentence are told apart by "
        "clauses, and texts suit one topic each, or an encoder that learns "
        "(--encoder-training tuned), which then takes the fewest steps on a GPU",
    )
    words_from: Literal["auto", "train", "corpus", "vectors"] = option(
        "auto",
        "Words known besides those of the training texts. train: none; vectors: "
        "every word of --vectors, its vector fixed; corpus: the words of dev and "
        "test texts that have a vector, trained like the others (as Kim's code "
        "does; it uses no labels); auto: corpus for benchmark corpora, vectors for "
        "your own file",
    )
    vector_words: int = option(
        130_000,
        "Maximum number of words known only by a fixed vector (--words-from "
        "vectors); the first in the file are kept. Lower it for a smaller model "
        "folder",
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
        "encoder-linear",
        "encoder-attention",
    ] = option(
        "capsule-b",
        "The system to train. capsule-b: capsules on several n-gram sizes; "
        "capsule-a: on one; all others are baselines to compare with",
        common=True,
    )
    ngram_sizes: tuple[int, ...] = option(
        (3, 4, 5),
        "K1, words per n-gram. capsule-b: one network per size (see --joint); "
        "capsule-a: the first size only; cnn: one window per size",
        low=1,
        high=1000,
    )
    piece_size: int = option(
        0,
        "Numbers per learnt vector of a word piece, which n-gram networks of their own "
        "read beside the states of --encoder, so that what a text says word for word "
        "counts too (0: none; only capsules with dynamic routing and --average "
        "lengths have them)",
        low=0,
        high=10_000,
    )
    joint: bool = option(
        False,
        "Put the n-grams of all sizes side by side at every position of one "
        "network, instead of one network per size",
    )
    peaks: bool = option(
        False,
        "Add networks of peaks: they route the strongest value of every n-gram feature "
        "in the text, so that a phrase is not diluted in a long text (capsules only)",
    )
    embeddings: Literal["random", "static", "non-static"] = option(
        "non-static",
        "Word vectors: random, static (those of --vectors, fixed) or non-static "
        "(those of --vectors, trained further)",
    )
    embedding_size: int = option(
        300, "V, numbers per word vector; with --vectors, the size in that file", low=1
    )
    filters: int = option(
        32,
        "B, filters of the n-gram convolution per n-gram size. More of them need "
        "more time and memory",
        low=1,
    )
    stride: int = option(
        1,
        "Step of the n-gram convolution, in words; 2 leaves out every second position",
        low=1,
        high=1000,
    )
    edges: bool = option(
        False,
        "Let n-grams reach over the ends of a text, onto zero vectors, so that its "
        "first and last words are in more of them (also cnn)",
    )
    capsule_types: int = option(32, "C, primary capsules per position", low=1)
    capsule_size: int = option(16, "d, numbers per capsule", low=1)
    conv_capsules: bool = option(
        True,
        "Have the convolutional capsule layer (off: the model of the paper's "
        "visualisation)",
    )
    conv_window: int = option(
        3, "K2, positions that a convolutional capsule sees", low=1, high=1000
    )
    conv_types: int = option(16, "D, convolutional capsules per position", low=1)
    shared: bool = option(
        True,
        "Use one transform per parent for all its children (off: one per child and "
        "parent, with many more weights)",
    )
    transform_bias: bool = option(
        True, "Add a learnt bias to the votes of the children"
    )
    routing: Literal["dynamic", "attention"] = option(
        "dynamic",
        "How class capsules collect their children. dynamic: by agreement, as in "
        "the paper; attention: each class asks with a learnt query (--amendment, "
        "--squash, --normalise and --shared then do not apply to the classes)",
    )
    iterations: int = option(
        3, "Iterations of routing. More of them need more time", low=1, high=1000
    )
    leaky: bool = option(
        True, "Leaky softmax: a child may send part of its vote to no parent"
    )
    compete: bool = option(
        True,
        "Softmax over the parents: what a child gives to one parent it takes from "
        "the others (off: one sigmoid per parent, for comparison, without the fast "
        "kernels)",
    )
    amendment: bool = option(
        True,
        "Multiply the couplings by the child's length (the paper's coefficient "
        "amendment)",
    )
    normalise: Literal["none", "total"] = option(
        "none",
        "Weights of the children in a text. none: as they are, as in the paper; "
        "total: divided by their sum, so that a long text counts like a short one",
    )
    routing_gain: float = option(
        20.0,
        "Sum of the children's weights with --normalise total, when training starts",
        above=0.0,
    )
    learn_gain: bool = option(
        True, "Learn that sum in training (off: it stays at --routing-gain)"
    )
    orphan: bool = option(
        True,
        "Add one more parent that collects background words and is not shown in "
        "results",
    )
    squash: Literal["norm", "sabour", "released", "exp", "tanh", "none"] = option(
        "norm",
        "Function from a pose's norm to its length. norm: the paper's; sabour: "
        "Sabour et al.'s; released: that of the paper's code; the others: for "
        "comparison",
    )
    average: Literal["lengths", "poses"] = option(
        "lengths",
        "What capsule-b averages over its n-gram networks: the lengths of the "
        "class capsules or their poses",
    )
    mask_padding: bool = option(
        True,
        "Ignore padding (off: every text is padded to --max-tokens and padding "
        "votes, as in the paper's code)",
    )
    initialiser: Literal["xavier", "tensorflow"] = option(
        "xavier",
        "Range of the initial weights: Xavier-uniform with the fans of each single "
        "map, or with the fans that TensorFlow counts, as in the paper's code",
    )
    dropout: float = option(
        0.0,
        "Share of the numbers in word vectors set to zero in training. Raise it if "
        "the loss falls but dev accuracy does not rise",
        low=0.0,
        below=1.0,
    )
    word_dropout: float = option(
        0.0,
        "Share of words whose whole vector is set to zero in training",
        low=0.0,
        below=1.0,
    )
    feature_dropout: float = option(
        0.0,
        "Share of n-gram features set to zero in training, before the primary capsules",
        low=0.0,
        below=1.0,
    )
    capsule_dropout: float = option(
        0.0,
        "Share of capsules set to zero in training, before each routed layer",
        low=0.0,
        below=1.0,
    )
    transform_gain: float = option(
        1.0, "Factor on the initial values of the transforms", above=0.0
    )


@dataclass(frozen=True, kw_only=True)
class BaselineConfig(Checked):
    """The baselines to compare with; each one reads only some of these options."""

    hidden_size: int = option(150, "LSTMs: numbers per state and direction", low=1)
    pooling: Literal["last", "mean", "max"] = option(
        "last",
        "lstm, bilstm: which of the words' states stand for the text: the last, "
        "their mean or their maximum",
    )
    tree_kind: Literal["child-sum", "n-ary"] = option(
        "child-sum",
        "tree-lstm: child-sum over dependency trees, or n-ary over the binary "
        "trees that come with SST",
    )
    regulariser_weight: float = option(
        0.5, "lr-lstm: alpha, weight of the linguistic regularisers", low=0.0
    )
    regulariser_margin: float = option(
        0.5,
        "lr-lstm: M, divergence between neighbouring words that costs nothing",
        low=0.0,
    )
    feature_maps: int = option(100, "cnn: filters per n-gram size", low=1)
    max_norm: float = option(
        3.0, "cnn: maximum norm of a class's weight vector (0: no limit)", low=0.0
    )
    output_dropout: float = option(
        0.5,
        "Share of features set to zero in training, before the output layer",
        low=0.0,
        below=1.0,
    )
    characters: int | None = option(
        None,
        "cl-cnn, vd-cnn: characters read per text, which is cut or padded to this "
        "length; none: as published, 1014 for cl-cnn and 1024 for vd-cnn",
        low=123,
    )
    cl_cnn_size: Literal["small", "large"] = option(
        "small", "cl-cnn: 256 features and 1024 units (small), or 1024 and 2048 (large)"
    )
    vd_cnn_depth: Literal[9, 17, 29] = option(
        9,
        "vd-cnn: convolutional layers. Set --learning-rate 0.0003 with it: at "
        "0.001 it mostly does not start to learn",
    )
    tfidf_c: float = option(
        1.0, "tfidf-svm, tfidf-lr: C, inverse strength of the regularisation", above=0.0
    )
    fasttext_epochs: int = option(
        25, "fasttext: passes over the training texts", low=1, high=1_000_000
    )
    fasttext_rate: float = option(0.5, "fasttext: learning rate", above=0.0)
    fasttext_ngrams: int = option(
        2, "fasttext: maximum number of words per n-gram", low=1, high=100
    )
    fasttext_size: int = option(
        10, "fasttext: numbers per word vector", low=1, high=10_000
    )


@dataclass(frozen=True, kw_only=True)
class LossConfig(Checked):
    """What training minimises."""

    loss: Literal[
        "auto", "margin", "spread", "cross-entropy", "binary-cross-entropy", "entropy"
    ] = option(
        "auto",
        "What training minimises. auto: margin for capsules, cross-entropy for the "
        "others (binary where a text may have several labels, and for attention "
        "routing); entropy: labels that a text does not have count as unknown, not "
        "as wrong",
    )
    m_plus: float = option(
        0.9, "Margin loss: length that a true class should reach", low=0.0
    )
    m_minus: float = option(
        0.1, "Margin loss: length that the other classes should stay below", low=0.0
    )
    down_weight: float = option(
        0.5, "Margin loss: lambda, weight of the other classes", low=0.0
    )
    absent_weight: float = option(
        1.0,
        "Margin loss and binary cross-entropy: weight of the labels that a text "
        "does not have, on top of lambda. Lower it if some of them may be true",
        low=0.0,
    )
    entropy_weight: float = option(
        0.1,
        "Entropy loss: alpha, how strongly labels that a text does not have are "
        "held at undecided. Raise it if every label comes out as true",
        low=0.0,
    )
    spread_start: float = option(0.2, "Spread loss: margin in the first epoch", low=0.0)
    spread_end: float = option(0.9, "Spread loss: margin at the end", low=0.0)
    spread_epochs: int = option(
        10, "Spread loss: epochs over which the margin rises from start to end", low=1
    )
    per_branch: bool = option(
        False,
        "Give every n-gram network, those of --peaks too, a loss of its own (off: one "
        "loss of their average; capsules only)",
    )
    orphan_in_loss: bool = option(False, "Count the orphan as a class that no text has")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """The training loop, and what is chosen on the development set."""

    task: Literal["auto", "single-label", "multi-label"] = option(
        "auto",
        "single-label: one label per text; multi-label: all labels that a text "
        "deserves, even if training texts have one each; auto: what the data has",
        common=True,
    )
    start_length: float = option(
        0.0,
        "Mean length to which the capsules of every layer are scaled before "
        "training, measured on some training texts (0: no scaling)",
        low=0.0,
        below=1.0,
    )
    epochs: int | None = option(
        20,
        "Maximum number of passes over the training texts; none: 8, or for few "
        "texts as many as make 800 steps, up to 40 (with --encoder 6 and 900; on a "
        "benchmark corpus 12 and 1,500)",
        low=1,
        high=1_000_000,
        common=True,
    )
    batch_size: int = option(
        25,
        "Texts per step. Lower it if memory runs out",
        low=1,
        high=1_000_000,
        common=True,
    )
    learning_rate: float = option(
        1e-3,
        "Step size of Adam. Lower it if the loss jumps or becomes infinite",
        above=0.0,
        common=True,
    )
    vector_rate: float = option(
        1.0,
        "Factor on the learning rate for word vectors that come from --vectors",
        low=0.0,
    )
    encoder_training: Literal["frozen", "light", "tuned"] = option(
        "frozen",
        "What training does with the weights of --encoder. frozen: nothing, so that "
        "its states are computed once, and a CPU trains in minutes; light: the last "
        "--encoder-layers learn, on the states below them; tuned: all weights learn, "
        "which takes a GPU, or a CPU many minutes",
        common=True,
    )
    encoder_layers: int = option(
        2, "Last layers of the encoder that learn with --encoder-training light", low=1
    )
    encoder_rate: float = option(
        3e-5,
        "Learning rate of the encoder's last layer, where the encoder learns. It rises "
        "and falls as --learning-rate does. Lower it if dev accuracy falls",
        above=0.0,
    )
    encoder_decay: float = option(
        0.9,
        "Factor on --encoder-rate for every layer further down, where the encoder "
        "learns (1: the same rate for all)",
        above=0.0,
        high=1.0,
    )
    contrastive_epochs: int = option(
        0,
        "Passes over the training texts before the first epoch in which the encoder "
        "learns alone: it puts texts that share a label close together and others "
        "apart (0: none; with --encoder-training light or tuned)",
        low=0,
        high=1_000,
    )
    rate_decay: float = option(
        1.0, "Factor on the learning rate after every epoch", low=0.0
    )
    schedule: Literal["constant", "linear", "cosine"] = option(
        "constant",
        "How the learning rate falls from the first step to nearly zero at the "
        "last: not at all, along a line, or along half a cosine",
    )
    warmup: float = option(
        0.0,
        "Share of all steps in which the learning rate first rises from nearly "
        "zero (0: no warm-up)",
        low=0.0,
        below=1.0,
    )
    weight_decay: float = option(
        0.0,
        "AdamW's decay: each step shrinks the weights by this times the learning "
        "rate, but not word vectors, biases and gains (0: Adam)",
        low=0.0,
    )
    average_weights: float = option(
        0.0,
        "Share of the past in a running average of the weights, per step; the "
        "average is judged on dev and kept (0: no average; 0.999: over about the "
        "last 1,000 steps)",
        low=0.0,
        below=1.0,
    )
    clip_norm: float = option(
        0.0,
        "Maximum norm of the gradient; longer ones are scaled down (0: no limit)",
        low=0.0,
    )
    patience: int = option(
        0,
        "Stop after this many epochs without a better dev score (0: never). "
        "Counting starts once dev accuracy is clearly above that of always giving "
        "the commonest label",
        low=0,
        common=True,
    )
    select: Literal["auto", "accuracy", "joined", "last"] = option(
        "auto",
        "Which epoch is kept. accuracy: the one with the best dev accuracy; "
        "joined: with the best --threshold-for measure on the documents of "
        "--calibrate-on; last: the last one; auto: joined for multi-label, else "
        "accuracy",
    )
    joined: float = option(
        0.0,
        "Joined training texts per single one, each made of two texts with "
        "different labels and drawn anew every epoch (0: none)",
        low=0.0,
        high=100.0,
    )
    joined_share: float = option(
        1.0,
        "When two texts are joined, one of them is cut: the minimum share of it "
        "that is kept, in training and on dev (1: both stay whole)",
        above=0.0,
        high=1.0,
    )
    joined_by: Literal["texts", "labels"] = option(
        "texts",
        "How the texts to join are drawn, in training and on dev: every text "
        "equally often, or every label equally often",
    )
    threshold_for: Literal["exact-match", "micro-f1"] = option(
        "exact-match",
        "Measure that the thresholds make as high as possible on the documents of "
        "--calibrate-on",
    )
    calibrate_on: Literal["joined", "single+joined"] = option(
        "single+joined",
        "Documents on which the thresholds are chosen (and the epoch, with "
        "--select joined): joined pairs of dev texts, or the single dev texts and "
        "as many joined pairs. If some dev texts have several labels, all dev "
        "texts are used as they are",
    )
    thresholds: Literal["one", "per-label"] = option(
        "one",
        "Minimum score to give a label: one for all labels, or one per label. A "
        "label with few dev texts stays near the common threshold (with 20 texts, "
        "half way to its own)",
        common=True,
    )
    refuse: bool = option(
        True,
        "Learn from the words of the training texts to give texts outside their "
        "topics no label; the limit is chosen on dev, with 30 texts or more",
    )
    word_scores: Literal["none", "words", "pairs", "dev"] = option(
        "none",
        "Linear model of words (an SVM on TF-IDF) added to the network and weighed "
        "on dev. none: no such model; words: of single words; pairs: of pairs of "
        "neighbouring words too; dev: whichever of these is best on dev",
    )
    checkpoint_seconds: float = option(
        10.0,
        "Minimum time between two checkpoints, in seconds (0: one after every epoch)",
        low=0.0,
    )
    seed: int = option(
        0,
        "Seed of initial weights, order of texts, dropout and joined texts. Train "
        "with several to see how much results vary",
        low=0,
        high=LARGEST_SEED,
        common=True,
    )
    device: str = option(
        "auto",
        "Where to compute: cpu, cuda or cuda:N; auto: a GPU if there is one",
        common=True,
    )
    precision: Literal["ieee", "tf32", "tf32x3", "bf16"] = option(
        "ieee",
        "Products on a GPU. ieee: whole float32; tf32: tensor cores, which keep 10 "
        "bits; tf32x3: tensor cores on three such parts, nearly float32; bf16: as "
        "tf32, and what is routed is stored in 16 bits",
    )


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "text": TextConfig,
    "model": ModelConfig,
    "baseline": BaselineConfig,
    "loss": LossConfig,
    "train": TrainConfig,
}
