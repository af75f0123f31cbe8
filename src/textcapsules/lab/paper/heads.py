"""Heads on one pretrained encoder: the systems of the table `encoders`.

All heads read the same states of the same texts, on the preset `encoder-frozen`, and
have two settings each; logistic regression has five, since a fit takes seconds. Heads
on an encoder whose last layers learn (`light`) use the setting chosen for the same head
on the frozen one, and so do heads with a linear model of words. Heads on an encoder
that learns as a whole (`tuned`) have options of their own, the same for each, and five
settings of the encoder's rate and the epochs.
"""

from pathlib import Path

from textcapsules.config import PRESETS, preset
from textcapsules.lab.paper.systems import SYSTEMS, Options, TableSystem, with_words
from textcapsules.text.encoder_files import is_folder

__all__ = ["ENCODER_CORPORA", "EVERY_SYSTEM", "HEADS", "encoder_name", "search_source"]

ENCODER_CORPORA = (
    "mr",
    "sst2",
    "subj",
    "trec",
    "cr",
    "ag-news",
    "reuters-multi",
    "reuters-full",
)
PRESET, TUNED_PRESET = "encoder-frozen", "encoder-tuned"


def _rates(*rates: float) -> tuple[Options, ...]:
    return tuple({"train": {"learning_rate": rate}} for rate in rates)


_RATES, _LARGE_RATES = _rates(3e-3, 1e-3), _rates(2e-3, 2e-2)  # a single layer's
_COSTS: tuple[Options, ...] = tuple(
    {"baseline": {"tfidf_c": C}} for C in (1.0, 0.1, 0.01, 10.0, 100.0)
)
_LIGHT_COST, _TUNED_COST = 10.0, 40.0
_TUNED_SETTINGS: tuple[Options, ...] = tuple(
    {"train": {"encoder_rate": rate, "epochs": epochs}}
    for rate, epochs in ((5e-5, 3), (2e-5, 3), (1e-4, 3), (5e-5, 2), (5e-5, 4))
)


def _head(
    name: str,
    title: str,
    settings: tuple[Options, ...],
    cost: float,
    *,
    capsules: bool = False,
    **model: str,
) -> TableSystem:
    kind = "capsule" if capsules else "network"
    options: Options = {"model": model} if model else {}
    return TableSystem(
        name, title, kind, options, settings, PRESET, vectors=False, cost=cost
    )


def _light(head: TableSystem) -> TableSystem:
    """Return a head on an encoder whose last layers learn."""
    return head._replace(
        name=f"{head.name}_light",
        title=f"{head.title}, encoder light",
        options={**head.options, "train": {"encoder_training": "light"}},
        settings=({},),
        searched_as=head.name,
        cost=_LIGHT_COST,
    )


def _with_words(head: TableSystem) -> TableSystem:
    """Return a head with a linear model of words, in the setting of the head."""
    source = head.searched_as or head.name
    return with_words(head)._replace(settings=({},), searched_as=source)


def _with_pieces(head: TableSystem) -> TableSystem:
    """Return a head with networks of word pieces too, as users run the preset."""
    given = PRESETS[PRESET]
    options: Options = {
        "model": {"piece_size": given["model"]["piece_size"]},
        "loss": given["loss"],
    }
    return head._replace(
        name=f"{head.name}_pieces",
        title=f"{head.title}, with pieces",
        options=options,
        settings=({},),
        searched_as=head.name,
    )


def _tuned(head: TableSystem) -> TableSystem:
    """Return a head on an encoder whose weights all learn."""
    train = {"batch_size": preset(TUNED_PRESET).train.batch_size}  # not a corpus's own
    return head._replace(
        name=f"{head.name}_tuned",
        title=f"{head.title}, encoder tuned",
        options={**head.options, "train": train},
        preset=TUNED_PRESET,
        settings=_TUNED_SETTINGS,
        searched_apart=("trec",),
        by_corpus={"ag-news": {"train": {"epochs": 1}}},  # of 60,000 texts
        cost=_TUNED_COST,
    )


_CAPSULES = _head("encoder_capsules", "Capsules", _RATES, 1.0, capsules=True)
_ROUTED_BY_ATTENTION = _head(
    "encoder_capsules_attention",
    "Capsules, attention routing",
    _RATES,
    1.0,
    capsules=True,
    routing="attention",
)
_LINEAR = _head(
    "encoder_linear",
    "Linear layer on the mean state",
    _LARGE_RATES,
    0.3,
    architecture="encoder-linear",
)
_ATTENTION = _head(
    "encoder_attention",
    "Attention per label",
    _LARGE_RATES,
    0.4,
    architecture="encoder-attention",
)
_REGRESSION = _head(
    "encoder_lr",
    "Logistic regression on the mean state",
    _COSTS,
    0.1,
    architecture="encoder-linear",
)._replace(kind="regression")

_PIECES = _with_pieces(_CAPSULES)
_CAPSULES_TUNED, _LINEAR_TUNED = _tuned(_CAPSULES), _tuned(_LINEAR)

HEADS: dict[str, TableSystem] = {
    entry.name: entry
    for entry in (
        _CAPSULES,
        _ROUTED_BY_ATTENTION,
        _LINEAR,
        _ATTENTION,
        _REGRESSION,
        *map(_with_words, (_CAPSULES, _LINEAR, _ATTENTION)),
        _PIECES,
        _with_words(_PIECES),
        *map(_light, (_CAPSULES, _LINEAR)),
        _CAPSULES_TUNED,
        _tuned(_ROUTED_BY_ATTENTION),
        _LINEAR_TUNED,
        _tuned(_ATTENTION),
        *map(_with_words, (_CAPSULES_TUNED, _LINEAR_TUNED)),
    )
}

EVERY_SYSTEM = {**SYSTEMS, **HEADS}


def search_source(entry: TableSystem) -> TableSystem:
    """Return the system whose search chooses the setting of this one.

    >>> search_source(SYSTEMS["capsule_b_uniform"]).name
    'capsule_b'
    """
    return entry if entry.searched_as is None else EVERY_SYSTEM[entry.searched_as]


def encoder_name(encoder: str) -> str:
    """Return what records call an encoder, whichever folder it lies in.

    >>> encoder_name("thenlper/gte-small"), encoder_name("encoders/gte-small/")
    ('gte-small', 'gte-small')
    """
    path = Path(encoder)
    return path.resolve().name if is_folder(encoder) else path.name
