"""`slurmstack dashboard`: what it says where there is no page, and how it leads to one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.access.dashboard import open_dashboard
from cli.errors import Failure
from config import load_config
from config.cluster import ClusterConfig
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed, thing
from tests.stacks import with_change


@dataclass(frozen=True, kw_only=True)
class Forwarding(FakeKubectl):
    """kubectl whose port-forward is a program of the test."""

    script: Path

    def command(self) -> list[str]:
        return [str(self.script)]


@pytest.fixture
def stack() -> ClusterConfig:
    sections = with_change(stacks.dev(), "rest", {"enabled": True})
    return load_config(with_change(sections, "dashboard", {"enabled": True}))


def kubectl(tmp_path: Path, script: str = "", *, there: bool = True) -> Forwarding:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    services = listed(*([thing("Service", "rest")] if there else []))
    return Forwarding(script=program, answers=[({"service"}, services, "")])


def test_what_kubectl_says_when_it_cannot_lead_there_is_told(tmp_path: Path, stack: ClusterConfig) -> None:
    with pytest.raises(Failure, match="port-forward ended: no pods are there"):
        open_dashboard(kubectl(tmp_path, "echo no pods are there >&2; exit 1"), stack, port=0, until=threading.Event())
