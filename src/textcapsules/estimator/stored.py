"""What a fitted estimator keeps: its model, thresholds, folder and pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from textcapsules.classifier import TextClassifier
from textcapsules.errors import ModelFolderError
from textcapsules.packed import pack, unpack
from textcapsules.training.folder import check_folder, clear
from textcapsules.training.lock import check_unlocked, locked

__all__ = ["StoredClassifier"]


class StoredClassifier(ClassifierMixin, BaseEstimator):
    """A trained model and how its labels were given."""

    device: str
    multi_label: bool | None
    model_: TextClassifier
    classes_: NDArray  # (J,)
    target_form_: str  # "single", "sets" or "matrix"
    class_prior_: NDArray  # (J,)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def thresholds_(self) -> NDArray[np.float64]:
        """The least length of each label; set one number, one a class, or a dict."""
        check_is_fitted(self)
        values = np.array(self.model_.labels.thresholds)
        values.flags.writeable = False  # a change in place would be lost
        return values

    @thresholds_.setter
    def thresholds_(self, value: float | ArrayLike | Mapping[Any, float]) -> None:
        check_is_fitted(self)
        labels = self.model_.labels
        if isinstance(value, Mapping):
            known = dict(zip(self.classes_.tolist(), labels.thresholds, strict=True))
            if strange := [label for label in value if label not in known]:
                raise ValueError(
                    f"thresholds_ must be of the labels {list(known)}; got "
                    f"{strange[0]!r}."
                )
            value = list({**known, **value}.values())
        numbers = np.asarray(value, dtype=float)
        if (
            numbers.shape not in ((), (len(labels.names),))
            or not np.isfinite(numbers).all()
        ):
            raise ValueError(
                f"thresholds_ must be a finite number or {len(labels.names)} of them; "
                f"got {value!r:.60}."
            )
        least = np.broadcast_to(numbers, len(labels.names)).tolist()
        self.model_.labels = labels._replace(thresholds=tuple(least))

    def to_model(self) -> TextClassifier:
        """Return the trained model, its record telling what the labels were like.

        Labels must be strings or numbers; for others, use joblib.
        """
        check_is_fitted(self)
        classes = self.classes_.tolist()
        for label in classes:
            if not isinstance(label, str | int | float):
                raise ValueError(
                    "labels must be strings or numbers to be saved as JSON; got "
                    f"{label!r:.40}. Use joblib.dump."
                )
        self.model_.record["estimator"] = {
            "classes": classes,
            "target_form": self.target_form_,
            "class_prior": self.class_prior_.tolist(),
            "multi_label": self.multi_label,
        }
        return self.model_

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write a model folder, which the command line and `load` read."""
        model, folder = self.to_model(), Path(folder)
        check_unlocked(folder)
        check_folder(folder, overwrite)
        with locked(folder):
            clear(folder)
            model.save(folder)

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Self:
        """Read what `save` wrote, or any model folder of the command line."""
        return cls.of(TextClassifier.load(folder, device), device)

    @classmethod
    def of(cls, model: TextClassifier, device: str = "auto") -> Self:
        """Return a fitted estimator around a trained model."""
        names, several = model.labels.names, model.labels.task == "multi-label"
        known = {
            "classes": names,
            "target_form": "sets" if several else "single",
            "class_prior": [1 / len(names)] * len(names),
            "multi_label": None,
            **model.record.get("estimator", {}),
        }
        made = cls()
        made.set_params(
            preset=model.config.preset, multi_label=known["multi_label"], device=device
        )
        made.model_, made.classes_ = model, np.array(known["classes"])
        made.target_form_ = known["target_form"]
        made.class_prior_ = np.array(known["class_prior"])
        if not len(made.classes_) == len(made.class_prior_) == len(names):
            raise ModelFolderError(
                f"training.json must describe {len(names)} labels; got "
                f"{len(made.classes_)}. Restore the folder."
            )
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = cast("dict[str, Any]", super().__getstate__())
        if "model_" in state:
            state = {**state, "model_": pack(self.model_)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = {**state, "model_": unpack(state["model_"], state["device"])}
        super().__setstate__(state)
