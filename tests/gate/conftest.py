"""What the gate's tests have in common."""

from __future__ import annotations

import pytest

from tests.e2e import failures


def pytest_configure(config: pytest.Config) -> None:
    """Have failures told at once, with what was seen."""
    failures.have_told(config)
