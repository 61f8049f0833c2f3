"""`slurmstack up` by kubectl: what it goes by where another one works on the same cluster."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cli.commands import cluster as cluster_commands
from cli.errors import Failure
from cli.jail import fit
from cli.kubectl import upgrade
from cli.kubectl.apply import Plan
from cli.kubectl.diff import key
from cli.program.generated import KeptValues
from cli.program.manifests import manifests
from cli.safety.jobs import JobsTouched
from cli.stack import Stack, open_stack
from local.report import PlainReport
from tests import stacks
from tests.fakes.kubectl import FakeCluster, UnrenewedLock
from tests.recordings import record
from tests.stacks import with_change
from tests.unit.cli.command_line import stack_file


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return open_stack(stack_file(tmp_path, stacks.dev()))


@pytest.mark.parametrize("backup", [True, False])
def test_nothing_is_sent_before_the_backup_of_an_upgrade_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, backup: bool
) -> None:
    sections = with_change(stacks.existing_full(), "slurm.version", "26.05")
    new, old = (manifests(record(each, stack="prod")) for each in (sections, stacks.existing_full()))
    live = {key(item.document): dict(item.document) for item in old}
    planned = Plan(
        namespace="slurm", objects=tuple(new), kept=KeptValues({}), live=live, inside=live, outside=(), effects=()
    )  # fmt: skip
    kubectl, nothing = FakeCluster(), Future[None]()
    nothing.set_result(None)

    def away(*_: Any, **__: Any) -> str:
        assert not kubectl.applied
        raise Failure("the store is away")

    monkeypatch.setattr(upgrade, "run_job", away)
    monkeypatch.setattr(cluster_commands, "reach", lambda _: kubectl)
    monkeypatch.setattr(cluster_commands, "held", lambda *_, **__: nullcontext(UnrenewedLock(kubectl)))
    monkeypatch.setattr(cluster_commands, "_plan_alone", lambda *_, **__: (planned, None, nothing))
    monkeypatch.setattr(fit, "refuse_root_of_plan", lambda *_: None)
    monkeypatch.setattr(cluster_commands, "of_kubectl", lambda *_: JobsTouched())
    stack = open_stack(stack_file(tmp_path, sections))
    with pytest.raises(Failure) as caught:
        cluster_commands._up_with_kubectl(
            stack, PlainReport(), yes=True, timeout=1, kill_jobs=False, backup=backup, adopt=False
        )
    if backup:
        assert "nothing was touched: the store is away" in caught.value.message
    assert bool(kubectl.applied) == (not backup)
