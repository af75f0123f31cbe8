"""From a request's texts to its answer: check, queue, decide, format."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.deploy.service.batching import Batcher, QueueFullError
from textcapsules.deploy.service.limits import Limits
from textcapsules.deploy.service.metrics import Metrics
from textcapsules.deploy.service.schema import PredictRequest, RefusedError
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import (
    Explanation,
    LabelExplanation,
    Phrase,
    Sentence,
)
from textcapsules.reasons.methods import can_explain, default_method, methods_of
from textcapsules.reasons.texts import explain

__all__ = ["Service"]

SURROGATE = re.compile("[\ud800-\udfff]")


class BatchKey(NamedTuple):
    """What all texts of a batch share: the model, and how it is explained."""

    model: str
    phrases: int | None = None  # None: no explanations, and nothing below counts
    method: str | None = None
    changes: bool = False
    multi_label: bool | None = None
    threshold: float | None = None


class Scored(NamedTuple):
    """The model's scores and explanation of one text."""

    scores: NDArray[np.float32]  # (J,)
    known: int  # of the words read
    words: int
    explanation: Explanation | None


class Service:
    """The models, the thread that runs them, and the counts."""

    def __init__(
        self,
        models: Mapping[str, TextClassifier],
        limits: Limits,
        threads: int | None = None,
    ) -> None:
        self.models, self.limits = dict(models), limits
        self.batcher = Batcher(
            self.score,
            queue=limits.queue,
            batch=limits.batch,
            batch_wait=limits.batch_wait,
            # Torch's number of threads is the calling thread's own.
            on_start=lambda: torch.set_num_threads(threads or torch.get_num_threads()),
            on_batch=lambda texts, seconds: self.metrics.count_batch(texts, seconds),
        )
        self.metrics = Metrics(lambda: self.batcher.waiting)

    def score(self, key: BatchKey, texts: list[str]) -> list[Scored]:
        """Score one batch; runs in the model's thread."""
        classifier = self.models[key.model]
        scores, known, words, _ = classifier.read(texts)
        explanations: Sequence[Explanation | None] = [None] * len(texts)
        if key.phrases is not None:
            explanations = explain(
                classifier,
                texts,
                top=key.phrases,
                method=key.method,
                changes=key.changes,
                multi_label=key.multi_label,
                threshold=key.threshold,
            )
        rows = zip(scores, known.tolist(), words.tolist(), explanations, strict=True)
        return [Scored(*row) for row in rows]

    async def predict(self, request: PredictRequest) -> dict[str, Any]:
        """Answer a request, or refuse it."""
        texts = request.texts
        name = self.pick_model(request.model)
        if request.explain and not can_explain(self.models[name]):
            message = (
                f"explain must be false for {name!a:.60}, which cannot be explained"
            )
            raise RefusedError(422, message)
        check_decision(request)
        check_reasons(request, self.models[name])
        check_texts(texts, self.limits, explain=request.explain)
        key = BatchKey(name)
        if request.explain:
            key = BatchKey(
                name,
                request.phrases,
                request.method,
                request.changes,
                request.multi_label,
                request.threshold,
            )
        scored = await self.queue(key, texts)
        if not all(np.isfinite(each.scores).all() for each in scored):
            message = f"the scores of {name!a:.60} must be finite; got NaN or infinity"
            raise RefusedError(503, message)
        self.metrics.texts.labels(name, str(request.explain).lower()).inc(len(texts))
        predictions = format_predictions(self.models[name], scored, request)
        return {"model": name, "predictions": predictions}

    def pick_model(self, name: str | None) -> str:
        """Return the model asked for, or the only one."""
        served = ", ".join(sorted(self.models))
        if name is None and len(self.models) > 1:
            raise RefusedError(422, f"model must be one of {served}; got none")
        name = next(iter(self.models)) if name is None else name
        if name not in self.models:
            raise RefusedError(404, f"model must be one of {served}; got {name!a:.60}")
        return name

    async def queue(self, key: BatchKey, texts: Sequence[str]) -> list[Scored]:
        """Wait for the model's answer, up to the time limit."""
        try:
            results = self.batcher.submit(key, texts)
        except QueueFullError as error:
            wait = str(error.retry_after)
            message = f"the queue must have room; got a full one. Wait {wait} s"
            raise RefusedError(429, message, {"Retry-After": wait}) from None
        seconds = self.limits.time_limit
        try:
            return await asyncio.wait_for(asyncio.wrap_future(results), seconds)
        except TimeoutError:
            message = f"the answer must take at most {seconds:g} s; it took longer"
            raise RefusedError(504, message) from None

    def describe(self) -> dict[str, Any]:
        """Return every model and the limits of a request."""
        limits = self.limits
        return {
            "models": [describe(*item) for item in self.models.items()],
            "limits": {
                "texts": limits.max_texts,
                "explained": min(limits.max_explained, limits.max_texts),
                "characters": limits.max_characters,
                "bytes": limits.max_bytes,
            },
        }


def describe(name: str, classifier: TextClassifier) -> dict[str, Any]:
    """Return what a client needs to know about a model."""
    labels = classifier.labels
    pairs = zip(labels.names, labels.thresholds, strict=True)
    return {
        "name": name,
        "task": labels.task,
        "labels": [{"name": name, "threshold": value} for name, value in pairs],
        "explains": can_explain(classifier),
        "method": default_method(classifier) if can_explain(classifier) else None,
        "methods": usable_methods(classifier),
        "reads": reads(classifier),
        "max_tokens": classifier.config.text.max_tokens,
    }


def reads(classifier: TextClassifier) -> str:
    """Return what the model reads: words or characters."""
    return "characters" if classifier.tokenizer.rule == "characters" else "words"


def check_decision(request: PredictRequest) -> None:
    """Refuse a threshold where only the highest label is asked for."""
    if request.threshold is not None and request.multi_label is False:
        raise RefusedError(
            422, "threshold must go with all labels past it; got multi_label: false"
        )


def usable_methods(classifier: TextClassifier) -> list[str]:
    """Return the methods that suit a model, none if it cannot be explained."""
    return list(methods_of(classifier.network)) if can_explain(classifier) else []


def check_reasons(request: PredictRequest, classifier: TextClassifier) -> None:
    """Refuse a method that does not suit the model."""
    usable = usable_methods(classifier)
    if request.explain and request.method not in (None, *usable):
        raise RefusedError(
            422,
            f"method must be one of {', '.join(usable)}; got {request.method!a:.60}",
        )


def check_texts(texts: Sequence[str], limits: Limits, *, explain: bool) -> None:
    """Refuse too many texts, and texts that are too long."""
    limit = min(limits.max_texts, limits.max_explained if explain else len(texts))
    if len(texts) > limit:
        what = "texts to explain" if explain else "texts"
        raise RefusedError(422, f"{what} must be at most {limit}; got {len(texts)}")
    for place, text in enumerate(texts):
        if len(text) > limits.max_characters:
            raise RefusedError(
                422,
                f"texts.{place} must have at most {limits.max_characters} characters; "
                f"got {len(text)}",
            )
        if SURROGATE.search(text):  # JSON can hold it, but it is no character
            raise RefusedError(
                422, f"texts.{place} must be Unicode; got half a surrogate pair"
            )


def format_predictions(
    classifier: TextClassifier, scored: list[Scored], request: PredictRequest
) -> list[dict[str, Any]]:
    """Return the answer's predictions, decided as `TextClassifier.predict` does."""
    rows = np.stack([each.scores for each in scored])
    decided = classifier.decide(
        rows, multi_label=request.multi_label, threshold=request.threshold
    )
    predictions = []
    for each, chosen in zip(scored, decided, strict=True):
        names = classifier.labels.names
        prediction: dict[str, Any] = {
            "labels": classifier.names(each.scores, chosen),
            "scores": dict(zip(names, each.scores.tolist(), strict=True)),
            "readable": bool((each.scores > 0).any()),
            "known": each.known,
            "words": each.words,
        }
        if each.explanation is not None:
            prediction["explanation"] = format_explanation(each.explanation)
        predictions.append(prediction)
    return predictions


def format_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation in the form of the answer."""
    text, orphan = explanation.text, explanation.orphan
    return {
        "method": explanation.method,
        "tokens": [{"start": t.start, "end": t.end} for t in explanation.tokens],
        "labels": {each.label: format_label(text, each) for each in explanation.labels},
        "sentences": [format_sentence(each) for each in explanation.sentences],
        "background": None if orphan is None else format_label(text, orphan),
        "background_share": explanation.orphan_share,
        "unclaimed": explanation.leak,
    }


def format_label(text: str, label: LabelExplanation) -> dict[str, Any]:
    """Return one label's phrases and token strengths, short enough to send."""
    change = None
    if label.change is not None:
        places = label.change.deleted
        deleted = [
            {"text": text[start:end], "start": start, "end": end}
            for start, end in places
        ]
        change = {"deleted": deleted, "score": label.change.score}
    return {
        "phrases": [format_phrase(phrase) for phrase in label.phrases],
        "against": [format_phrase(phrase) for phrase in label.against],
        "tokens": [rounded(value) for value in label.tokens],
        "change": change,
    }


def format_phrase(phrase: Phrase) -> dict[str, Any]:
    """Return a phrase in the form of the answer."""
    values = {"text": phrase.text, "start": phrase.start, "end": phrase.end}
    return {**values, "strength": rounded(phrase.strength)}


def format_sentence(sentence: Sentence) -> dict[str, Any]:
    """Return a sentence in the form of the answer."""
    falls = sorted(sentence.falls.items(), key=lambda item: -item[1])
    labels = [{"label": name, "strength": rounded(fall)} for name, fall in falls]
    return {"start": sentence.start, "end": sentence.end, "labels": labels}


def rounded(strength: float) -> float:
    """Keep five digits: strengths are shown, never compared with a threshold."""
    return float(f"{strength:.5g}")
