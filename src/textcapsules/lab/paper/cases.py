"""Which documents and words the paper's displays show, for a trained model.

Tables 6, A.1 and A.2 show documents with the connection strengths of their n-grams,
table A.3 the words with the strongest connections to some categories and the orphan.
"""

from collections.abc import Iterable, Sequence

from textcapsules.base.errors import ConfigError
from textcapsules.data.example import Example
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.explanation import LabelPhrases

__all__ = ["CASES", "choose_cases", "word_columns"]

# The documents the paper shows, all with several labels: what is true of each.
CASES = {
    "table6": "fully correct, every label above 0.8",
    "a1": "fully correct, every label between 0.4 and 0.6",
    "a2": "partly correct: some labels right, some wrong",
}


def choose_cases(
    classifier: TextClassifier, examples: Sequence[Example]
) -> dict[str, Example | None]:
    """Find the first document of each of `CASES`, None where there is none."""
    examples = [example for example in examples if len(example.labels) > 1]
    scores = classifier.scores([example.text for example in examples])
    found: dict[str, Example | None] = dict.fromkeys(CASES)
    decided = classifier.decide(scores)
    for example, row, chosen in zip(examples, scores, decided, strict=True):
        by_label = zip(classifier.labels.names, row.tolist(), strict=True)
        pairs = zip(by_label, chosen, strict=True)
        predicted = dict(pair for pair, is_predicted in pairs if is_predicted)
        case = kind_of_case(set(example.labels), predicted)
        if case is not None and found[case] is None:
            found[case] = example
    return found


def kind_of_case(true: set[str], predicted: dict[str, float]) -> str | None:
    """Return which of `CASES` a prediction is, if any."""
    if true == set(predicted):
        if min(predicted.values()) > 0.8:
            return "table6"
        if all(0.4 < score < 0.6 for score in predicted.values()):
            return "a1"
    elif true & set(predicted) and set(predicted) - true:
        return "a2"
    return None


def word_columns(
    classifier: TextClassifier,
    examples: Iterable[Example],
    labels: Sequence[str],
    *,
    top: int = 20,
    method: str = "couplings",
) -> tuple[LabelPhrases, ...]:
    """Return the columns of table A.3: the orphan, if there is one, then some labels.

    The paper's model for it has uni-grams (K1 = 1) and no convolutional capsules. A
    word's strengths are added up over the texts that got the label; the orphan's over
    all texts.
    """
    unknown = [label for label in labels if label not in classifier.labels.names]
    if unknown:
        names = ", ".join(classifier.labels.names)
        raise ConfigError(f"labels must be some of {names}; got {unknown[0]!r}.")
    found = explain_corpus(classifier, examples, method=method, top=top, mistakes=0)
    by_label = {column.label: column for column in found.labels}
    orphan = () if found.orphan is None else (found.orphan,)
    return (*orphan, *(by_label[label] for label in labels))
