"""Which method a model's reasons come from, measured when it has been trained.

No method is the most faithful for every model and every kind of text. So each is tested
on a sample of dev texts (`faithfulness`), and the model's record keeps the outcome
under `reasons`: the method chosen, and every method's figures with standard errors.

The sample is bounded by tokens, not by time, so that the same training gives the same
record on every machine. Integrated gradients and erasure cost many predictions per text
and have never been clearly ahead; they are measured where nothing cheaper exists.
Sampled contributions read 32 altered texts per text. On word vectors these cost little;
an encoder would have to read them all, so there they are not measured.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from textcapsules.base.errors import DataError
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import Faithfulness
from textcapsules.reasons.faithfulness import CLEAR, measure_faithfulness
from textcapsules.reasons.methods import can_explain, methods_of

__all__ = ["measure_reasons", "warn_of_method"]

MAX_TEXTS = 40
MAX_TOKENS = 2000  # of all texts of the sample together
FEW = 20  # cases; the error of fewer means little
SLOW = ("integrated", "erasure")


def measure_reasons(
    classifier: TextClassifier, texts: Sequence[str], *, seed: int = 0
) -> dict[str, Any] | None:
    """Test a model's methods on some texts and return what its record keeps.

    Returns None if the model cannot be explained, has one method only, or gives none
    of the texts a label.

    Args:
        classifier: a trained model.
        texts: dev texts; their labels are not used.
        seed: of the sample.
    """
    if not can_explain(classifier):
        return None
    slow = (*SLOW, "sampled") if classifier.config.text.encoder else SLOW
    methods = [each for each in methods_of(classifier.network) if each not in slow]
    if methods == ["gradient"]:
        methods = ["gradient", "integrated"]
    sample = draw_sample(classifier, texts, np.random.default_rng(seed))
    if not methods or not sample:
        return None
    try:
        found = measure_faithfulness(
            classifier, sample, methods=methods, max_texts=len(sample), draws=1
        )
    except DataError:  # no label for any of them
        return None
    return {"method": found.chosen, "measured_on": "dev", **figures(found)}


def draw_sample(
    classifier: TextClassifier, texts: Sequence[str], random: np.random.Generator
) -> list[str]:
    """Return some texts, at most `MAX_TEXTS` and, but for the first, `MAX_TOKENS`."""
    rows: list[int] = random.permutation(len(texts))[:MAX_TEXTS].tolist()
    chosen = [texts[row] for row in rows]
    sizes = [len(ids) for ids in classifier.encode(chosen)]
    n_texts = int((np.cumsum(sizes) <= MAX_TOKENS).sum())
    return chosen[: max(n_texts, 1)]


def figures(found: Faithfulness) -> dict[str, Any]:
    """Return the figures of a test, short enough for a record."""
    n_cases = found.cases
    return {
        "texts": found.texts,
        "cases": n_cases,
        "methods": {
            each.method: {
                "comprehensiveness": round(each.comprehensiveness, 4),
                "comprehensiveness_error": round(
                    each.comprehensiveness_spread / n_cases**0.5, 4
                ),
                "sufficiency": round(each.sufficiency, 4),
                "sufficiency_error": round(each.sufficiency_spread / n_cases**0.5, 4),
                "behind": round(each.behind, 4),
                "behind_error": round(each.behind_error, 4),
            }
            for each in found.methods
        },
    }


def warn_of_method(classifier: TextClassifier, method: str) -> str | None:
    """Return a warning if a method is clearly less faithful than the model's best."""
    measured = classifier.record.get("reasons")
    if not isinstance(measured, dict):
        return None
    row = measured.get("methods", {}).get(method)
    if (
        not row
        or measured["cases"] < FEW
        or row["behind"] <= CLEAR * row["behind_error"]
    ):
        return None
    return (
        f"{method} explains this model less faithfully than {measured['method']}: on "
        f"{measured['texts']} dev texts its gap is {row['behind']:.2f} ± "
        f"{row['behind_error']:.2f} narrower. Take {measured['method']} for reasons."
    )
