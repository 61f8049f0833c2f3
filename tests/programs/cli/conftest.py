"""What several files of tests here want."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    """A PATH with `pulumi` and `kubectl` that only note calls."""
    return FakeEngine(tmp_path / "bin")
