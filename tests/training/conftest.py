from pathlib import Path

import pytest

from toy import toy_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return toy_file(tmp_path)
