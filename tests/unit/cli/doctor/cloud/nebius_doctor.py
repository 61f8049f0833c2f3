"""The doctor before a Nebius cloud of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cli.doctor.cloud.nebius import diagnose
from cli.doctor.cloud.report import Finding
from config import load_config
from config.nebius.cloud import NebiusCloud
from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Reply, serve

TOKEN = "token-for-tests"

Doctor = Callable[..., list[Finding]]


def make(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """What the fixture `doctor` is, with credentials that are good."""

    def run(
        replies: dict[str, Reply] | None = None, sections: dict[str, Any] | None = None, limit: float = 20
    ) -> list[Finding]:
        config = load_config(sections or cloud.stack())
        assert isinstance(config.cloud, NebiusCloud)
        with serve(cloud.good() | (replies or {}), token=TOKEN) as server:
            monkeypatch.setenv("SLURMSTACK_NEBIUS_SERVER", server.address)
            return diagnose(config, config.cloud, limit=limit)

    monkeypatch.setenv("NEBIUS_IAM_TOKEN", TOKEN)
    return run


def only(findings: list[Finding], check: str) -> Finding:
    """The one finding of a check."""
    (found,) = (item for item in findings if item.check == check)
    return found


def worst(findings: list[Finding], check: str) -> Finding:
    """The gravest finding of a check."""
    gravity = ("change", "unchecked", "warning", "fine")
    return min((item for item in findings if item.check == check), key=lambda item: gravity.index(item.state))
