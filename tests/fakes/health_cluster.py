"""A cluster for the tests of `slurmstack health`: kubectl with a controller that answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands import health as health_commands
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from images.common.health.contract import Result as Found
from images.common.health.contract import Status
from images.common.health.report import Report, encode
from images.common.health.slurm import Record
from tests.fakes.kubectl import PlayedKubectl

NOW = 1_795_000_000.0
"""Seconds since 1970: 2026-11-18T11:06:40Z."""

NAMES = (
    "disks", "dns", "filesystem", "gpu-presence", "gpu-xid", "infiniband", "munge",
)  # fmt: skip

Answer = subprocess.CompletedProcess[str]


def answer(stdout: str = "", stderr: str = "", code: int = 0) -> Answer:
    return subprocess.CompletedProcess([], code, stdout, stderr)


def node(
    name: str,
    *states: str,
    age: float | None = 12,
    reason: str = "",
    note: str = "",
    results: dict[str, Found] | None = None,
) -> Record:
    """A node whose checks are well but those that are given; `age` None: it never reported. `cpu-...` has no GPUs."""
    usual = [check for check in NAMES if not (name.startswith("cpu") and check.startswith(("gpu-", "infiniband")))]
    found = {check: Found(status=Status.OK) for check in usual} | (results or {})
    comment = note if age is None else encode(Report(at=int(NOW - age), results=found, note=note))
    return Record(name=name, states=frozenset({*(states or ("IDLE",)), "DYNAMIC_NORM"}), reason=reason, comment=comment)


def printed(nodes: Sequence[Record]) -> str:
    """What scontrol prints of them."""
    entries = [
        {
            "name": node.name, "state": sorted(node.states), "reason": node.reason, "comment": node.comment,
            "reason_changed_at": node.reason_at or 0,
        }
        for node in nodes
    ]  # fmt: skip
    return json.dumps({"nodes": entries})


@dataclass(frozen=True, kw_only=True)
class FakeCluster(PlayedKubectl):
    """kubectl, whose controller knows these nodes."""

    nodes: Sequence[Record] = ()
    controller: Answer | None = None
    """What the controller answers instead of its nodes."""
    namespace: Answer = field(default_factory=lambda: answer("namespace/slurm\n"))

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float) -> Answer:
        del stdin, check
        match arguments:
            case ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld", "--", "sh", "-c", script):
                assert script == "date +%s && scontrol show nodes --json"
                return self.controller or answer(f"{NOW:.0f}\n{printed(self.nodes)}")
            case ("get", "pod", "-n", "slurm", "-l", "slurmstack/active=yes", *_):
                return answer()  # there is one controller
            case ("get", "--ignore-not-found", "namespace", "slurm", "-o", "name"):
                return self.namespace
        raise AssertionError(f"unexpected kubectl {arguments}")


class Unreachable:
    """In the place of `reach`, where the cluster does not answer."""

    def __call__(self, _: object) -> Kubectl:
        raise Failure("the cluster does not answer")


def health(monkeypatch: pytest.MonkeyPatch, cluster: object, *arguments: str) -> Result:
    """The command, on the development stack with this cluster."""
    reach = cluster if isinstance(cluster, Unreachable) else lambda _: cluster
    monkeypatch.setattr(health_commands, "reach", reach)
    return CliRunner().invoke(app, ["health", *arguments])


def failure_of(result: Result) -> Failure:
    assert isinstance(result.exception, Failure), result.output
    return result.exception
