"""The commands of backups, as far as they do something themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import pytest
import typer

from cli.commands import backup
from cli.errors import Refused
from cli.kubectl.client import OWNERS
from config.sections.services import ImageRole
from tests import stacks
from tests.unit.cli.command_line import stack_file


def test_what_would_start_slurm_in_the_midst_of_a_restore_is_to_be_suspended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def applied_by(manager: str, operation: str) -> Any:
        def items(*arguments: str) -> list[dict[str, Any]]:
            assert {OWNERS, "app.kubernetes.io/part-of=slurmstack"} <= {*arguments}, "kubectl hides who owns what"
            managers = [{"manager": manager, "operation": operation}]
            return [{"kind": "StatefulSet", "metadata": {"name": "controller", "managedFields": managers}, "spec": {}}]

        return lambda _: Mock(items=items)

    monkeypatch.setattr(backup, "require_own", lambda *_: None)
    monkeypatch.setattr(backup, "chosen", Mock(side_effect=NotImplementedError("it goes on")))
    file = stack_file(tmp_path, stacks.existing_full())
    for manager, operation in (("kustomize-controller", "Apply"), ("argocd-controller", "Update")):
        monkeypatch.setattr(backup, "reach", applied_by(manager, operation))
        with pytest.raises(Refused, match=f"is applied by {manager}"):
            backup.restore(file, yes=True)
        with pytest.raises(NotImplementedError):
            backup.restore(file, yes=True, suspended=True)
    monkeypatch.setattr(backup, "reach", applied_by("kubectl", "Apply"))
    with pytest.raises(NotImplementedError):
        backup.restore(file, yes=True)


def test_a_restore_asks_for_the_cluster_s_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, answer in {"chosen": "20261126T020000Z", "whereabouts": "here", "running_jobs": ["7"]}.items():
        monkeypatch.setattr(backup, name, Mock(return_value=answer))
    monkeypatch.setattr(backup, "reach", Mock(return_value=Mock(items=lambda *_: [])))
    monkeypatch.setattr(backup, "held", Mock(side_effect=NotImplementedError("it goes on")))
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    file = stack_file(tmp_path, stacks.existing_full())
    monkeypatch.setattr(typer, "prompt", prompt := Mock(return_value="y"))
    with pytest.raises(Refused, match="state, database, jail of here will be as in backup 20261126T020000Z; 1 running"):
        backup.restore(file)
    prompt.return_value = "slurm"
    with pytest.raises(NotImplementedError):
        backup.restore(file)


ENDED = {"backup": "20261126T020000Z", "seconds": {"total": 33, "slurmctld": 4}, "found": {"jobs": 3}}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A cluster that rehearses at once; what its Job was told."""
    job = Mock(return_value=json.dumps(ENDED))
    monkeypatch.setattr(backup, "run_job", job)
    monkeypatch.setattr(backup, "reach", Mock())
    monkeypatch.setattr(backup, "ensure_local_images", Mock())
    return job


def test_a_rehearsal_that_ended_well_is_told(made: Mock, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup.rehearse(stack_file(tmp_path, stacks.existing_full()))
    assert "under Slurm 24.11 is as it was (33 s)\n  compared: 3 jobs\n" in capsys.readouterr().out
    assert made.call_args.kwargs == {"env": {"AT": ""}}, "what the CronJob has is that of the cluster"


def test_another_release_has_its_own_images_and_slurm_conf(made: Mock, tmp_path: Path) -> None:
    digests = dict.fromkeys(get_args(ImageRole), f"sha256:{'0' * 64}")
    full = stacks.existing_full()
    file = stack_file(tmp_path, {**full, "images": {**full["images"], "tag": "old", "digests": digests}})
    for tag, shown in (("", ":26.05-"), ("new", ":new")):
        backup.rehearse(file, version="26.05", tag=tag)
        how = made.call_args.kwargs
        assert shown in how["image"]
        assert "for Slurm 26.05" in how["env"]["FILES"]
