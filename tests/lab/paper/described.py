"""A random classifier that says of itself what a display's model does."""

from typing import Any

from random_models import random_classifier
from textcapsules.model.classifier import TextClassifier


def described_classifier(**options: Any) -> TextClassifier:
    classifier = random_classifier(**options)
    classifier.record = {
        "epochs": [{"dev_accuracy": 0.5}, {"dev_accuracy": 0.875}],
        "best_epoch": 2,
        "texts": {"train": 1234},
        "corpus": {"title": "Some news, all of them"},
    }
    return classifier
