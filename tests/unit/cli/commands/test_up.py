"""What `slurmstack up` does first, and when it is whole."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.change import apply as upgrade
from cli.change import rollout
from cli.change.jobs import JobsTouched
from cli.change.plan import Plan, key, plan
from cli.commands import cluster as cluster_commands
from cli.errors import USAGE, Failure
from cli.jail import roots
from cli.program.recording import KeptValues, manifests
from cli.stack import Stack, open_stack
from config import load_config
from local.report import PlainReport
from tests import stacks
from tests.fakes.kubectl import FakeCluster, thing
from tests.recordings import record
from tests.stacks import with_change
from tests.unit.cli.command_line import stack_file

HELD = SimpleNamespace(is_held=True)
"""The lock, by this command."""


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
        namespace="slurm", objects=tuple(new), kept=KeptValues({}), live=live, inside=live, left=(), effects=()
    )  # fmt: skip
    kubectl = FakeCluster()

    def away(*_: Any, **__: Any) -> str:
        assert not kubectl.applied
        raise Failure("the store is away")

    monkeypatch.setattr(upgrade, "run_job", away)
    monkeypatch.setattr(rollout, "POLL", 0)
    monkeypatch.setattr(cluster_commands, "reach", lambda _: kubectl)
    monkeypatch.setattr(cluster_commands, "held", lambda *_, **__: nullcontext(HELD))
    monkeypatch.setattr(cluster_commands, "plan", lambda *_, **__: planned)
    monkeypatch.setattr(cluster_commands, "planned_policy", lambda *_: None)
    monkeypatch.setattr(roots, "refuse_root_of_plan", lambda *_: None)
    monkeypatch.setattr(cluster_commands, "jobs_of_plan", lambda *_: JobsTouched())
    stack = open_stack(stack_file(tmp_path, sections))
    with pytest.raises(Failure) as caught:
        cluster_commands._up_with_kubectl(stack, PlainReport(), yes=True, timeout=0, kill_jobs=False, backup=backup)
    if backup:
        assert "nothing was touched: the store is away" in caught.value.message
    assert bool(kubectl.applied) == (not backup)


def test_an_update_is_not_whole_where_slurmctld_answered_neither_before_nor_after(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = FakeCluster()
    planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)

    def silent(*_: Any) -> None:
        raise Failure("no answer within 10 s")

    monkeypatch.setattr(rollout, "ANSWERS", 0)
    monkeypatch.setattr(rollout, "read_queue", silent)
    monkeypatch.setattr(cluster_commands, "reach", lambda _: kubectl)
    monkeypatch.setattr(cluster_commands, "held", lambda *_, **__: nullcontext(HELD))
    monkeypatch.setattr(cluster_commands, "plan", lambda *_, **__: planned)
    monkeypatch.setattr(cluster_commands, "planned_policy", lambda *_: None)
    monkeypatch.setattr(cluster_commands, "_build_local_images", lambda *_: None)
    monkeypatch.setattr(cluster_commands, "_apply", lambda *_, **__: None)
    monkeypatch.setattr(cluster_commands, "jobs_of_plan", lambda *_: JobsTouched(unread="no answer"))
    monkeypatch.setattr(cluster_commands, "_build_local_images", lambda *_: None)
    with pytest.raises(Failure, match="all is applied, but slurmctld does not answer: no answer within 10 s"):
        cluster_commands._up_with_kubectl(stack, PlainReport(), yes=True, timeout=0, kill_jobs=False, backup=False)


def test_a_cluster_that_another_command_has_just_begun_to_make_is_not_applied_to(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = FakeCluster(items_there=[thing("Namespace", "slurm")])
    planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
    not_held = SimpleNamespace(is_held=False)
    monkeypatch.setattr(cluster_commands, "reach", lambda _: kubectl)
    monkeypatch.setattr(cluster_commands, "held", lambda *_, **__: nullcontext(not_held))
    monkeypatch.setattr(cluster_commands, "plan", lambda *_, **__: planned)
    monkeypatch.setattr(cluster_commands, "planned_policy", lambda *_: None)
    with pytest.raises(Failure, match="another command has just begun to make this cluster"):
        cluster_commands._up_with_kubectl(stack, PlainReport(), yes=True, timeout=0, kill_jobs=False, backup=False)
    assert not kubectl.applied


def test_machines_in_a_cloud_are_not_sent_for_images_that_are_only_here() -> None:
    sections = stacks.nebius()
    cluster_commands._refuse_unreachable_images(load_config(sections))
    del sections["images"]["registry"]
    with pytest.raises(Failure, match=r"images\.registry: the cloud's machines cannot pull") as caught:
        cluster_commands._refuse_unreachable_images(load_config(sections))
    assert caught.value.code == USAGE
