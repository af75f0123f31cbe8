"""States of sentences on disk, so that a second training need not encode again.

They lie in the user's cache, under the checksum of the encoder that gave them: a file
holds some sentences' states in half precision, found by checksums of the sentences, and
no text. A file is written whole or not at all, and its name is the checksum of its
content. A damaged file, one of another user, or none at all only costs time: the
sentences are then encoded again. The oldest files go when all are too large together.
"""

import hashlib
import logging
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from textcapsules.base.errors import WriteError
from textcapsules.base.files import read_regular, write_bytes

__all__ = ["FOLDER_VARIABLE", "StateStore", "store_folder"]

FOLDER_VARIABLE = "TEXTCAPSULES_STATES"
OFF = "off"  # its value for no store
MAX_BYTES = 1 << 31  # of all files together
FILE_BYTES = 1 << 29  # of one file
KEY_BYTES = 16  # of a sentence's checksum
SUFFIX = ".states"

log = logging.getLogger(__name__)


def store_folder() -> Path | None:
    """Return the folder of all states; None if the user wants none."""
    named, base = os.environ.get(FOLDER_VARIABLE), os.environ.get("XDG_CACHE_HOME")
    if named:
        return None if named == OFF else Path(named).expanduser()
    # The same place as data.corpora.cache_folder.
    return (Path(base) if base else Path.home() / ".cache") / "textcapsules" / "states"


class StateStore:
    """The stored states of one encoder's sentences."""

    def __init__(self, encoder: str, size: int) -> None:
        """Open the store of an encoder.

        Args:
            encoder: a checksum of all that decides its states.
            size: E, numbers per state.
        """
        root = store_folder()
        self.size, self.folder = size, None if root is None else root / encoder[:32]

    def read(self, sentences: Collection[bytes]) -> dict[bytes, Tensor]:
        """Return the stored states (T, E) among those of some sentences."""
        wanted = {checksum(sentence): sentence for sentence in sentences}
        found: dict[bytes, Tensor] = {}
        if self.folder is None or not wanted or not is_this_users(self.folder):
            return found
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            if len(found) == len(wanted):
                break
            states = self.read_file(path, wanted)
            if states:
                found |= states
                with suppress(OSError):
                    os.utime(path)  # the last one used is the last to go
        return found

    def read_file(
        self, path: Path, wanted: Mapping[bytes, bytes]
    ) -> dict[bytes, Tensor]:
        """Return what one file has; a damaged one is removed."""
        try:
            content = read_regular(path, FILE_BYTES)
            if hashlib.sha256(content).hexdigest() != path.stem:
                raise ValueError("another checksum")
            tensors = load(content)
            keys = tensors["keys"].numpy()  # (N, KEY_BYTES)
            ends = tensors["ends"].tolist()  # (N,)
            states = tensors["states"].view(-1, self.size)  # (all pieces, E)
        except OSError as error:
            log.info("%s is not read: %s", path, error)
            return {}
        except (KeyError, RuntimeError, SafetensorError, ValueError) as error:
            log.info("%s is damaged and removed: %s", path, error)
            with suppress(OSError):
                path.unlink()
            return {}
        found, start = {}, 0
        for key, end in zip(keys, ends, strict=True):
            sentence = wanted.get(key.tobytes())
            if sentence is not None:
                found[sentence] = states[start:end].clone()  # not the whole file
            start = end
        return found

    def write(self, states: Mapping[bytes, Tensor]) -> None:
        """Keep the states of some sentences, if the disk allows it."""
        if self.folder is None or not states:
            return
        keys = b"".join(map(checksum, states))
        lengths = [len(each) for each in states.values()]
        tensors = {
            "keys": torch.from_numpy(
                np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES).copy()
            ),
            "ends": torch.tensor(lengths).cumsum(0),
            "states": torch.cat(list(states.values())).cpu(),
        }
        content = save(tensors)
        if len(content) > FILE_BYTES:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_this_users(self.folder):
                return
            name = hashlib.sha256(content).hexdigest() + SUFFIX
            write_bytes(self.folder / name, content)
            remove_oldest(self.folder.parent)
        except (OSError, WriteError) as error:  # they are in memory all the same
            log.info("states are not kept in %s: %s", self.folder, error)


def checksum(sentence: bytes) -> bytes:
    """Return what stands for a sentence's pieces in a file."""
    return hashlib.sha256(sentence).digest()[:KEY_BYTES]


def is_this_users(folder: Path) -> bool:
    """Tell whether a folder is there and this user's, where the system has users."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def remove_oldest(root: Path) -> None:
    """Remove the files used longest ago until all together are small enough."""
    files = [(path, path.stat()) for path in root.glob(f"*/*{SUFFIX}")]
    total = sum(status.st_size for _, status in files)
    for path, status in sorted(files, key=lambda each: each[1].st_mtime):
        if total <= MAX_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
