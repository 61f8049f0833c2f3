"""Checks in the process of the test; that each has one of its own is seen in tests/programs/images/health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from images.common.health.contract import Check, Node, Thresholds
from images.health.runner import Outcome, attempt
from tests.fakes.commands import FakeRunner


def run_at_once(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let this module of images/health run its checks so."""

    def run_checks(checks: Sequence[Check], node: Node, thresholds: Thresholds, **_: Any) -> dict[str, Outcome]:
        tools: Any = FakeRunner()
        return {check.name: Outcome(result=attempt(check, node, thresholds, tools)) for check in checks}

    monkeypatch.setattr(f"images.health.{module}.run_checks", run_checks)
