"""Share a model through the Hugging Face hub, or a server with the same interface.

A repository holds a model folder and its model card, a README made from the record of
the training. Only JSON and weights are downloaded: nothing in them is executed.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from textcapsules import __version__
from textcapsules.base.errors import DownloadError, ModelFolderError, TextCapsulesError
from textcapsules.base.files import write_text
from textcapsules.config import CAPSULES
from textcapsules.inference.estimator import CapsuleClassifier
from textcapsules.model.classifier import (
    MODEL_FILES,
    TextClassifier,
    encoder_states,
)
from textcapsules.text.encoder import ENCODER_FILES
from textcapsules.text.encoder_files import SOURCE_FILE
from textcapsules.text.outside import OUTSIDE_FILE

__all__ = ["dev_figures", "from_pretrained", "model_card", "push_to_hub"]

CARD = "README.md"
LIBRARY = "textcapsules"
CLIENT = ("huggingface_hub", "httpx2", "httpx", "requests")
FIGURES = {
    "dev_accuracy": "accuracy",
    "dev_exact_match": "exact match, {on}",
    "dev_micro_f1": "micro F1, {on}",
}
NO_CALIBRATION = {"on": "nothing", "documents": 0, "objective": None}


def model_card(classifier: TextClassifier, repo_id: str, metadata: str) -> str:
    """Return the card as Markdown.

    Args:
        classifier: a trained model with its record.
        repo_id: where it will be found.
        metadata: the YAML that opens the card, fences included.
    """
    record, labels, config = classifier.record, classifier.labels, classifier.config
    calibration = {**NO_CALIBRATION, **record.get("calibration", {})}
    environment = Environment(
        loader=PackageLoader("textcapsules.deploy"), undefined=StrictUndefined
    )
    environment.filters["cell"] = as_cell
    return environment.get_template("model_card.md.j2").render(
        metadata=metadata,
        name=repo_id.split("/")[-1],
        repo_id=repo_id,
        version=__version__,
        config=config,
        is_capsule=config.model.architecture in CAPSULES,
        uses_word_scores=classifier.uses_word_scores,
        several=labels.task == "multi-label",
        labels=list(zip(labels.names, labels.thresholds, strict=True)),
        calibration=calibration,
        corpus={"files": {}, **record.get("corpus", {})},
        texts=record.get("texts", {}),
        words=record.get("words", classifier.tokenizer.n_words),
        vectors={"file": None, **record.get("vectors", {})},
        figures=[
            (FIGURES[key].format(on=calibration["on"]), value)
            for key, value in dev_figures(record).items()
        ],
        best_epoch=record.get("best_epoch", "unknown"),
        n_epochs=len(record.get("epochs", ())),
        seconds=record.get("seconds", "unknown"),
        device=record.get("device", "an unknown device"),
    )


def dev_figures(record: dict[str, Any]) -> dict[str, float]:
    """Return the development figures of the epoch that was kept."""
    epochs, best = record.get("epochs") or [], record.get("best_epoch")
    kept = next((epoch for epoch in epochs if epoch["epoch"] == best), {})
    return {key: kept[key] for key in FIGURES if key in kept}


def as_cell(value: Any) -> str:
    """Return a value as one cell of a Markdown table, special characters escaped."""
    text = " ".join(str(value).split())
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, f"\\{mark}")
    return text


def push_to_hub(
    model: TextClassifier | CapsuleClassifier | Path | str,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    create_pr: bool = False,
    license: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Upload a model with a card written from its training record.

    The paths of data and vectors are reduced to file names. A `README.md` in the
    model's folder is used as its card.

    Args:
        model: a model folder, a classifier, or a fitted `CapsuleClassifier`.
        repo_id: the repository, `owner/name`; created if it does not exist.
        private: whether a new repository is private.
        revision: the branch, `main` by default.
        commit_message: of the commit.
        create_pr: open a pull request instead of changing the branch.
        license: of the model, in the hub's abbreviation; by default the card has none.
        token: in place of the one stored by `hf auth login`.
        endpoint: another server than the hub.

    Returns:
        The address of the commit, or of the pull request.
    """
    hub = import_hub("share a model")
    api = hub.HfApi(endpoint, token, library_name=LIBRARY, library_version=__version__)
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        stage(model, repo_id, Path(folder), license)
        with hub_errors(repo_id):
            api.create_repo(repo_id, private=private, repo_type="model", exist_ok=True)
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                repo_type="model",
                revision=revision,
                commit_message=commit_message or f"Upload a {LIBRARY} model",
                create_pr=create_pr,
            )
    return done.pr_url or done.commit_url


def from_pretrained(
    model: Path | str,
    *,
    revision: str | None = None,
    cache_dir: Path | str | None = None,
    local_files_only: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
    device: str = "auto",
) -> TextClassifier:
    """Load a model from a folder, or from the hub.

    Args:
        model: a model folder, or else a repository, `owner/name`.
        revision: a branch, tag or commit.
        cache_dir: where downloads are kept, in place of the hub's usual cache.
        local_files_only: use what was downloaded before.
        token: in place of the one stored by `hf auth login`.
        endpoint: another server than the hub.
        device: auto, cpu, cuda or cuda:N.
    """
    if Path(model).exists():
        if revision is not None:
            raise ModelFolderError(
                f"revision must go with a repository of the hub; got {revision!r} "
                f"beside the folder {model}. Leave it out."
            )
        return TextClassifier.load(model, device)
    hub, repo_id = import_hub("download a model"), str(model)
    with hub_errors(repo_id):
        folder = hub.snapshot_download(
            repo_id,
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            token=token,
            endpoint=endpoint,
            allow_patterns=[*MODEL_FILES, *ENCODER_FILES, SOURCE_FILE, OUTSIDE_FILE],
            library_name=LIBRARY,
            library_version=__version__,
        )
    return TextClassifier.load(folder, device)


def stage(
    model: TextClassifier | CapsuleClassifier | Path | str,
    repo_id: str,
    folder: Path,
    license: str | None,
) -> None:
    """Write the files to upload, with the card."""
    card = None
    if isinstance(model, Path | str):
        path = Path(model) / CARD
        card = path.read_text(encoding="utf-8") if path.is_file() else None
        classifier = TextClassifier.load(model, "cpu")
    else:
        classifier = model if isinstance(model, TextClassifier) else model.to_model()
    shared = without_paths(classifier)
    shared.save(folder)
    metadata = card_metadata(shared, repo_id, license)
    write_text(folder / CARD, card or model_card(shared, repo_id, metadata))


def without_paths(classifier: TextClassifier) -> TextClassifier:
    """Return the classifier with file names in place of paths.

    Paths of the machine where it was trained are private, and of no use elsewhere.
    """
    data, text = classifier.config.data, classifier.config.text

    def name(path: str | None) -> str | None:
        return None if path is None else Path(path).name

    config = classifier.config.replace(
        data={
            "source": Path(data.source).name,
            "data_dir": None,
            "dev": name(data.dev),
            "test": name(data.test),
            "add": name(data.add),
        },
        text={
            "vectors": name(text.vectors),
            "encoder": name(text.encoder),
            "embed_encoder": text.embed_encoder or is_found_by_path(classifier),
        },
    )
    return TextClassifier(
        config,
        classifier.tokenizer,
        classifier.labels,
        classifier.network,
        classifier.record,
        classifier.rule,
    )


def is_found_by_path(classifier: TextClassifier) -> bool:
    """Tell whether an encoder is found on this machine only."""
    states = encoder_states(classifier.network)
    source = None if states is None else states.source
    return source is not None and Path(source.name).is_absolute()


def card_metadata(classifier: TextClassifier, repo_id: str, license: str | None) -> str:
    """Return the YAML that opens a card, between its fences."""
    hub = import_hub("write a model card")
    title = classifier.record.get("corpus", {}).get("title", "unknown")
    results = [
        hub.EvalResult(
            task_type="text-classification",
            dataset_type="custom",
            dataset_name=str(title),
            dataset_split="validation",
            metric_type=key.removeprefix("dev_"),
            metric_value=round(value, 4),
        )
        for key, value in dev_figures(classifier.record).items()
    ]
    tags = [LIBRARY, "text-classification"]
    if classifier.config.model.architecture in CAPSULES:
        tags.append("capsule-network")
    if classifier.labels.task == "multi-label":
        tags.append("multi-label")
    data = hub.ModelCardData(
        library_name=LIBRARY,
        pipeline_tag="text-classification",
        tags=tags,
        license=license,
        model_name=repo_id.split("/")[-1],
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml()}\n---"


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turn an error of the hub into one line."""
    try:
        yield
    except Exception as error:
        # The client passes on errors of its transport, a library that differs between
        # versions.
        if type(error).__module__.split(".")[0] not in CLIENT and not isinstance(
            error, OSError
        ):
            raise
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise DownloadError(
            f"{repo_id!r} must be a model folder, or a repository that the hub serves "
            f"and you may use; got {type(error).__name__}: {reason}. Check the name, "
            "the connection and `hf auth whoami`."
        ) from error


def import_hub(purpose: str) -> Any:
    """Import the hub's client, an extra."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise TextCapsulesError(
            f"huggingface_hub must be installed to {purpose}; got none. "
            "Run `pip install 'textcapsules[hub]'`."
        ) from error
    return huggingface_hub
