"""Every system of the tables: its title, its options, and the settings it may try.

This is the one place where the names of the tables become options of a run. A system
that is searched gets the same number of settings as every other, `N_SETTINGS`; the
first of them is its default. A system with a single setting is fixed by definition.

What two systems were chosen among, as many settings each: Capsule-B and a CNN.

Word vectors may learn at a share of the rate. Capsules may start at a given length, the
CNN may drop fewer features: a choice of its own for either. All that a setting decides
is said in it, so that it does not depend on what was chosen in the end.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any, Literal, NamedTuple

from textcapsules.base.errors import ConfigError
from textcapsules.data.catalogue import card

__all__ = [
    "N_SETTINGS",
    "SYSTEMS",
    "TUNED",
    "TUNED_ON",
    "Options",
    "System",
    "fits",
    "searched",
    "system",
]

Options = dict[str, dict[str, Any]]  # section -> field -> value

N_SETTINGS = 4


class System(NamedTuple):
    """One line of the tables."""

    name: str
    title: str
    kind: Literal["capsule", "network", "classic"]
    options: Options
    settings: tuple[Options, ...]  # the search's candidates, the default first
    preset: str = "paper"
    vectors: bool = True  # reads pretrained word vectors
    cost: float = 1.0  # seconds a text and epoch, relative to Capsule-B
    most_classes: int | None = None  # it can tell apart
    searched_on: str = "mr"  # for all corpora but Reuters
    search_folds: int = 1  # there, each setting
    by_corpus: Mapping[str, Options] = {}  # what a corpus of its own kind asks for
    searched_as: str | None = None  # uses the setting chosen for this other system


def _product(
    section: tuple[str, str, tuple[Any, Any]], other: tuple[str, str, tuple[Any, Any]]
) -> tuple[Options, ...]:
    """Return the four combinations of two options with two values each."""
    (part, name, values), (other_part, other_name, others) = section, other
    return tuple(
        {part: {name: value, other_name: second}}
        if part == other_part
        else {part: {name: value}, other_part: {other_name: second}}
        for second in others
        for value in values
    )


_FIXED: tuple[Options, ...] = ({},)
# The released code pads a text to the corpus's longest, and to 200 tokens on Reuters.
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
# On Reuters all networks read as many tokens, unless a table's line says otherwise.
_CUT: dict[str, Options] = {
    corpus: {"text": {"max_tokens": 200}}
    for corpus in ("reuters-multi", "reuters-full")
}
# What the paper's text leaves open about its networks.
_CAPSULES = _product(
    ("model", "dropout", (0.0, 0.5)), ("model", "transform_gain", (1.0, 4.0))
)
_RATES = ("train", "learning_rate", (1e-3, 3e-4))
_DROPOUT = ("baseline", "output_dropout", (0.5, 0.2))
_KIM = _product(_DROPOUT, _RATES)
_RECURRENT = _product(_DROPOUT, ("baseline", "pooling", ("last", "mean")))
_COSTS = tuple({"baseline": {"tfidf_c": c}} for c in (1.0, 0.1, 0.3, 3.0))


def _capsule(name: str, title: str, **given: Any) -> System:
    architecture = name[:9].replace("_", "-")
    options = {"model": {"architecture": architecture} | given.pop("model", {})}
    cost = 0.4 if architecture == "capsule-a" else 1.0
    return System(
        name, title, "capsule", options, given.pop("settings", _CAPSULES), cost=cost
    )._replace(**given)


def _variant(name: str, title: str, model: dict[str, Any]) -> System:
    return _capsule(
        f"capsule_b_best_{name}",
        f"Capsules, preset best, {title}",
        model=model,
        preset="best",
        settings=({"train": {"patience": 0}},),
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
) -> System:
    model = {"architecture": architecture or name.replace("_", "-")}
    return System(
        name,
        title,
        "network",
        {**options, "model": model | options.get("model", {})},
        settings,
        vectors=vectors,
        cost=cost,
    )


def _classic(name: str, title: str, settings: tuple[Options, ...]) -> System:
    options: Options = {"model": {"architecture": name.replace("_", "-")}}
    return System(name, title, "classic", options, settings, vectors=False, cost=0.05)


def _kim(
    name: str, title: str, embeddings: str, settings: tuple[Options, ...] = ()
) -> System:
    return _network(
        name,
        title,
        settings or _KIM,
        architecture="cnn",
        cost=0.2,
        vectors=embeddings != "random",
        # As in Kim's code, whose texts stand between zero vectors.
        model={"embeddings": embeddings, "edges": True},
    )


SYSTEMS: dict[str, System] = {
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
        # Found on dev as preset `best` was: `tuning`, then results/best/edges.json.
        _kim(
            "cnn_tuned",
            "CNN-non-static, tuned",
            "non-static",
            ({"train": {"vector_rate": 0.1, "rate_decay": 0.9}},),
        ),
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
                # Of the news 99 % are no longer than 512, and of the questions all.
                ("baseline", "characters", (None, 512)),
            ),
            vectors=False,
            cost=5.0,
            # Adam moves sums of 4,096 pooled features so far at once that most units
            # of the full layers die. At 0.001 eight of nine folds of Subj stood still,
            # and others for a while: one fold says little of a setting.
            train={"learning_rate": 3e-4},
        )._replace(searched_on="subj", search_folds=3),
        _capsule("capsule_a_paper", "Capsule-A, preset paper", settings=_FIXED),
        _capsule("capsule_b_paper", "Capsule-B, preset paper", settings=_FIXED),
        # One fold of MR could not tell two settings apart.
        _capsule("capsule_a", "Capsule-A searched", search_folds=3),
        _capsule("capsule_b", "Capsule-B searched", search_folds=3),
        # These two differ from Capsule-B searched in one thing each.
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
        # What preset best was before: found by `tuning`, then results/best/edges.json.
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
        # Found on dev: results/best/normalised.json.
        _capsule(
            "capsule_b_best",
            "Capsules, preset best",
            preset="best",
            settings=({"train": {"patience": 0}},),
            by_corpus=_CUT,
        ),
        # These differ from it in one thing each.
        _variant("one_iteration", "one iteration", {"iterations": 1}),
        _variant("no_competition", "no competition", {"compete": False}),
        _variant("not_normalised", "not normalised", {"normalise": "none"}),
        _variant("attention", "attention routing", {"routing": "attention"}),
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


def fits(entry: System, corpus: str) -> bool:
    """Tell whether a system can learn a corpus's classes.

    >>> fits(SYSTEMS["lr_lstm"], "mr"), fits(SYSTEMS["lr_lstm"], "trec")
    (True, False)
    """
    return entry.most_classes is None or len(card(corpus).labels) <= entry.most_classes


def searched(entry: System) -> System:
    """Return the system whose search chooses this one's setting.

    >>> searched(SYSTEMS["capsule_b_uniform"]).name
    'capsule_b'
    """
    return entry if entry.searched_as is None else SYSTEMS[entry.searched_as]


def system(name: str) -> System:
    """Return a system by its name.

    >>> system("capsule_b").options["model"]["architecture"]
    'capsule-b'
    """
    if name not in SYSTEMS:
        raise ConfigError(f"system must be one of {', '.join(SYSTEMS)}; got {name!r}.")
    return SYSTEMS[name]


TUNED_ON = {"mr": 4, "cr": 4, "trec": 3}  # folds or seeds of each, judged on dev
RATES, SHARES = (1e-3, 2e-3, 5e-4), (1.0, 0.3, 0.1)


def _settings(
    section: str, field: str, usual: float, other: float
) -> dict[str, Options]:
    """Return every rate with every share, and the other value with every share."""
    found: dict[str, Options] = {}
    cases = [(rate, share, usual) for rate, share in product(RATES, SHARES)]
    cases += [(RATES[0], share, other) for share in SHARES]
    for rate, share, value in cases:
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
        found[name] = options
    return found


# N-grams over the ends were found after these settings (results/best/edges.json).
_IN_TABLES: dict[str, Options] = {"as in the tables, n-grams over the ends": {}}

TUNED: dict[str, dict[str, Options]] = {
    "capsule_b_tuned": _settings("train", "start_length", 0.0, 0.4) | _IN_TABLES,
    "cnn_tuned": _settings("baseline", "output_dropout", 0.5, 0.3) | _IN_TABLES,
}
