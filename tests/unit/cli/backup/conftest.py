"""Nothing is waited for."""

from __future__ import annotations

import pytest

from cli.kubectl import jobs


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL", 0)
