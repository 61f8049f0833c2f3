"""What several files of tests here want."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.doctor.cloud.nebius_doctor import Doctor


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    """Findings for a stack (default: the example) in a cloud that is good but for the replies given."""
    from tests.unit.cli.doctor.cloud import nebius_doctor  # noqa: PLC0415  (the SDK takes a second to load)

    monkeypatch.setenv("HOME", str(tmp_path))
    return nebius_doctor.make(monkeypatch)
