"""Word vectors without compression: every run reads them, so they are unpacked once."""

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["unpacked"]


@contextmanager
def unpacked(vectors: str | None) -> Iterator[str | None]:
    """Yield a file of the same name and content that is quicker to read.

    Only a compressed `.npz` is copied. Anything else, a file that is missing or damaged
    among it, is left as it is: who reads it says what is wrong.
    """
    if vectors is None or not is_compressed(vectors):
        yield vectors
        return
    with tempfile.TemporaryDirectory(prefix="textcapsules-vectors-") as folder:
        copy = Path(folder) / Path(vectors).name
        with zipfile.ZipFile(vectors) as packed, zipfile.ZipFile(copy, "w") as plain:
            for name in packed.namelist():
                plain.writestr(name, packed.read(name))
        yield str(copy)


def is_compressed(path: str) -> bool:
    """Tell a compressed zip archive, as `numpy.savez_compressed` writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            stored = (entry.compress_type for entry in archive.infolist())
            return any(kind != zipfile.ZIP_STORED for kind in stored)
    except (OSError, zipfile.BadZipFile):
        return False
