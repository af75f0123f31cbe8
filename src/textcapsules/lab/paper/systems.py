"""Every system of the tables: its title, its options, and the settings of its search.

Only here do the names of the tables become options of a run. Every searched system has
the same number of settings, `N_SETTINGS`; the first is its default. A system with a
single setting is not searched.

`TUNED` holds a wider search, of Capsule-B and of a CNN, with as many settings for each.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any, Literal, NamedTuple

from textcapsules.data.catalogue import card

__all__ = [
    "N_SETTINGS",
    "SYSTEMS",
    "TUNED",
    "TUNED_ON",
    "Options",
    "TableSystem",
    "can_learn",
    "with_words",
]

Options = dict[str, dict[str, Any]]  # section -> field -> value

N_SETTINGS = 4


class TableSystem(NamedTuple):
    """A system that the tables compare."""

    name: str
    title: str
    kind: Literal["capsule", "network", "classic", "regression"]
    options: Options
    settings: tuple[Options, ...]  # of the search, the default first
    preset: str = "paper"
    vectors: bool = True  # reads pretrained word vectors
    cost: float = 1.0  # seconds per text and epoch, relative to Capsule-B
    most_classes: int | None = None  # that it can learn
    searched_on: str = "mr"  # for all corpora but Reuters
    searched_apart: tuple[str, ...] = ()  # corpora with a search of their own
    search_folds: int = 1  # per setting
    by_corpus: Mapping[str, Options] = {}  # further options on some corpora
    searched_as: str | None = None  # another system, whose chosen setting it uses


def _product(
    first: tuple[str, str, tuple[Any, Any]], second: tuple[str, str, tuple[Any, Any]]
) -> tuple[Options, ...]:
    """Return the four combinations of two options with two values each."""
    combinations = []
    for second_value, first_value in product(second[2], first[2]):
        options: Options = {first[0]: {first[1]: first_value}}
        options.setdefault(second[0], {})[second[1]] = second_value
        combinations.append(options)
    return tuple(combinations)


_FIXED: tuple[Options, ...] = ({},)
_ONE_LOSS: Options = {"loss": {"per_branch": False}}  # a single network has one anyway
# The released code pads every text to the longest of its corpus; on Reuters to 200.
_LONGEST = {
    "mr": 56,
    "sst2": 53,
    "sst2-phrases": 53,
    "subj": 120,
    "trec": 37,
    "cr": 105,
    "ag-news": 198,
}
_PADDED: dict[str, Options] = {
    corpus: {"text": {"max_tokens": longest}} for corpus, longest in _LONGEST.items()
}
# On Reuters all networks read 200 tokens, unless a line of a table says otherwise.
_CUT: dict[str, Options] = {
    corpus: {"text": {"max_tokens": 200}}
    for corpus in ("reuters-multi", "reuters-full")
}
# Options that the paper leaves open.
_CAPSULES = _product(
    ("model", "dropout", (0.0, 0.5)), ("model", "transform_gain", (1.0, 4.0))
)
_RATES = ("train", "learning_rate", (1e-3, 3e-4))
_DROPOUT = ("baseline", "output_dropout", (0.5, 0.2))
_KIM = _product(_DROPOUT, _RATES)
_RECURRENT = _product(_DROPOUT, ("baseline", "pooling", ("last", "mean")))
_COSTS = tuple({"baseline": {"tfidf_c": c}} for c in (1.0, 0.1, 0.3, 3.0))


def _capsule(name: str, title: str, **given: Any) -> TableSystem:
    architecture = name[:9].replace("_", "-")
    options = {"model": {"architecture": architecture} | given.pop("model", {})}
    cost = 0.4 if architecture == "capsule-a" else 1.0
    return TableSystem(
        name, title, "capsule", options, given.pop("settings", _CAPSULES), cost=cost
    )._replace(**given)


def _variant(
    name: str, title: str, model: dict[str, Any], *, peaks: bool = True
) -> TableSystem:
    """Return preset best with other options, and with no network of peaks if asked."""
    setting: Options = {"train": {"patience": 0}}
    if not peaks:
        model, setting = {**model, "peaks": False}, {**setting, **_ONE_LOSS}
    return _capsule(
        f"capsule_b_best_{name}",
        f"Capsules, preset best, {title}",
        model=model,
        preset="best",
        settings=(setting,),
        by_corpus=_CUT,
    )


def _network(
    name: str,
    title: str,
    settings: tuple[Options, ...],
    *,
    architecture: str | None = None,
    cost: float = 0.5,
    vectors: bool = True,
    **options: dict[str, Any],
) -> TableSystem:
    model = {"architecture": architecture or name.replace("_", "-")}
    return TableSystem(
        name,
        title,
        "network",
        {**options, "model": model | options.get("model", {})},
        settings,
        vectors=vectors,
        cost=cost,
    )


def _classic(name: str, title: str, settings: tuple[Options, ...]) -> TableSystem:
    options: Options = {"model": {"architecture": name.replace("_", "-")}}
    return TableSystem(
        name, title, "classic", options, settings, vectors=False, cost=0.05
    )


def _kim(
    name: str, title: str, embeddings: str, settings: tuple[Options, ...] = ()
) -> TableSystem:
    return _network(
        name,
        title,
        settings or _KIM,
        architecture="cnn",
        cost=0.2,
        vectors=embeddings != "random",
        # As in Kim's code, where a text stands between zero vectors.
        model={"embeddings": embeddings, "edges": True},
    )


def with_words(entry: TableSystem) -> TableSystem:
    """Return a network to whose scores a linear model of words is added."""
    train = {**entry.options.get("train", {}), "word_scores": "dev"}
    return entry._replace(
        name=f"{entry.name}_words",
        title=f"{entry.title}, with words",
        options={**entry.options, "train": train},
    )


# Chosen on dev like preset `best`: by `tuning`, then results/best/edges.json.
_TUNED_CNN = _kim(
    "cnn_tuned",
    "CNN-non-static, tuned",
    "non-static",
    ({"train": {"vector_rate": 0.1, "rate_decay": 0.9}},),
)
# Chosen on dev: results/best/normalised.json, then results/best/peaks.json.
_BEST = _capsule(
    "capsule_b_best",
    "Capsules, preset best",
    preset="best",
    settings=({"train": {"patience": 0}},),
    by_corpus=_CUT,
)

SYSTEMS: dict[str, TableSystem] = {
    entry.name: entry
    for entry in (
        _network("lstm", "LSTM", _RECURRENT),
        _network("bilstm", "BiLSTM", _RECURRENT, cost=0.8),
        _network(
            "tree_lstm",
            "Tree-LSTM",
            _product(_DROPOUT, ("baseline", "hidden_size", (150, 300))),
            cost=4.0,
        )._replace(by_corpus={"sst2": {"baseline": {"tree_kind": "n-ary"}}}),
        _network(
            "lr_lstm",
            "LR-LSTM",
            _product(_DROPOUT, ("baseline", "regulariser_weight", (0.5, 0.1))),
        )._replace(most_classes=2),
        _kim("cnn_rand", "CNN-rand", "random"),
        _kim("cnn_static", "CNN-static", "static"),
        _kim("cnn_non_static", "CNN-non-static", "non-static"),
        _TUNED_CNN,
        with_words(_TUNED_CNN),
        _network(
            "cl_cnn",
            "CL-CNN",
            _product(("baseline", "cl_cnn_size", ("small", "large")), _RATES),
            vectors=False,
            cost=3.0,
        )._replace(searched_on="subj"),
        _network(
            "vd_cnn",
            "VD-CNN",
            _product(
                ("baseline", "vd_cnn_depth", (9, 29)),
                # All questions and 99 % of the news are no longer than 512.
                ("baseline", "characters", (None, 512)),
            ),
            vectors=False,
            cost=5.0,
            # One step of Adam moves sums of 4,096 pooled features so far that most
            # units of the full layers die. At 0.001 eight of nine folds of Subj did not
            # learn, and others began late: one fold says little about a setting.
            train={"learning_rate": 3e-4},
        )._replace(searched_on="subj", search_folds=3),
        _capsule("capsule_a_paper", "Capsule-A, preset paper", settings=_FIXED),
        _capsule("capsule_b_paper", "Capsule-B, preset paper", settings=_FIXED),
        # Two settings were equal on one fold of MR.
        _capsule("capsule_a", "Capsule-A searched", search_folds=3),
        _capsule("capsule_b", "Capsule-B searched", search_folds=3),
        # Each of these two differs from Capsule-B searched in one option.
        _capsule(
            "capsule_b_uniform",
            "Capsule-B searched, uniform couplings",
            model={"iterations": 1},
            settings=_FIXED,
            searched_as="capsule_b",
        ),
        _capsule(
            "capsule_b_non_shared",
            "Capsule-B searched, non-shared",
            model={"shared": False},
            settings=_FIXED,
            searched_as="capsule_b",
            cost=30.0,
        ),
        _capsule(
            "capsule_a_released",
            "Capsule-A, as released",
            preset="released",
            settings=_FIXED,
            by_corpus=_PADDED,
        ),
        _capsule(
            "capsule_b_released",
            "Capsule-B, as released",
            preset="released",
            settings=_FIXED,
            by_corpus=_PADDED,
        ),
        # The former preset best: chosen by `tuning`, then results/best/edges.json.
        _capsule(
            "capsule_b_tuned",
            "Capsule-B, tuned",
            model={
                "dropout": 0.5,
                "edges": True,
                "transform_gain": 4.0,
                "conv_window": 1,
            },
            settings=({"train": {"start_length": 0.4, "vector_rate": 0.1}},),
        ),
        _BEST,
        with_words(_BEST),
        # Each of these differs from preset best in one option.
        _variant("one_iteration", "one iteration", {"iterations": 1}),
        _variant("no_competition", "no competition", {"compete": False}),
        _variant("not_normalised", "not normalised", {"normalise": "none"}),
        _variant("no_peaks", "no peaks", {}, peaks=False),
        _variant(
            "attention",
            "no peaks, attention routing",
            {"routing": "attention"},
            peaks=False,
        ),
        # One wide capsule per position, as attention was tried on other Reuters topics.
        _variant(
            "wide_attention",
            "no peaks, attention routing, one capsule of 128 numbers",
            {
                "routing": "attention",
                "capsule_types": 1,
                "capsule_size": 128,
                "squash": "none",
            },
            peaks=False,
        ),
        _classic("tfidf_svm", "TF-IDF + linear SVM", _COSTS),
        _classic("tfidf_lr", "TF-IDF + logistic regression", _COSTS),
        _classic(
            "fasttext",
            "fastText",
            _product(
                ("baseline", "fasttext_ngrams", (2, 1)),
                ("baseline", "fasttext_rate", (0.5, 0.1)),
            ),
        ),
    )
}


def can_learn(entry: TableSystem, corpus: str) -> bool:
    """Return whether a system can learn the classes of a corpus.

    >>> can_learn(SYSTEMS["lr_lstm"], "mr"), can_learn(SYSTEMS["lr_lstm"], "trec")
    (True, False)
    """
    return entry.most_classes is None or len(card(corpus).labels) <= entry.most_classes


TUNED_ON = {"mr": 4, "cr": 4, "trec": 3}  # folds or seeds, evaluated on dev
RATES, SHARES = (1e-3, 2e-3, 5e-4), (1.0, 0.3, 0.1)


def _settings(
    section: str, field: str, usual: float, other: float
) -> dict[str, Options]:
    """Return every rate with every share, and the other value with every share.

    A setting says all that it decides, so that it does not depend on what was chosen in
    the end. A share is that of the learning rate for word vectors.
    """
    settings: dict[str, Options] = {}
    combinations = [(rate, share, usual) for rate, share in product(RATES, SHARES)]
    combinations += [(RATES[0], share, other) for share in SHARES]
    for rate, share, value in combinations:
        options: Options = {
            "model": {"edges": False},
            "train": {
                "learning_rate": rate,
                "rate_decay": 1.0,
                "vector_rate": share,
            },
        }
        options.setdefault(section, {})[field] = value
        name = f"rate {rate:g}, of vectors {share:g}"
        if value == other:
            name += f", {field.replace('_', ' ')} {value:g}"
        settings[name] = options
    return settings


# N-grams over the ends came after these settings (results/best/edges.json).
_IN_TABLES: dict[str, Options] = {"as in the tables, n-grams over the ends": {}}

TUNED: dict[str, dict[str, Options]] = {
    "capsule_b_tuned": _settings("train", "start_length", 0.0, 0.4) | _IN_TABLES,
    "cnn_tuned": _settings("baseline", "output_dropout", 0.5, 0.3) | _IN_TABLES,
}
