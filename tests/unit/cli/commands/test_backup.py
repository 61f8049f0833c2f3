"""The commands of backups, as far as they do something themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cli.commands import backup
from cli.errors import Refused
from cli.kubectl.client import OWNERS
from tests import stacks
from tests.unit.cli.command_line import stack_file


class Applied:
    """A cluster whose slurmctld somebody applies."""

    def __init__(self, manager: str, operation: str) -> None:
        self.managers = [{"manager": "slurmstack", "operation": "Apply"}, {"manager": manager, "operation": operation}]

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        managers = {"managedFields": self.managers} if OWNERS in arguments else {}  # kubectl leaves them out by itself
        assert "app.kubernetes.io/part-of=slurmstack" in arguments
        return [{"kind": "StatefulSet", "metadata": {"name": "controller", **managers}, "spec": {}}]


def test_what_would_start_slurm_in_the_midst_of_a_restore_is_to_be_suspended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(backup, "require_own", lambda *_: None)
    monkeypatch.setattr(backup, "chosen", Mock(side_effect=NotImplementedError("it goes on")))
    file = stack_file(tmp_path, stacks.existing_full())
    for manager, operation in (("kustomize-controller", "Apply"), ("argocd-controller", "Update")):
        monkeypatch.setattr(backup, "reach", Mock(return_value=Applied(manager, operation)))
        with pytest.raises(Refused, match=f"is applied by {manager}") as caught:
            backup.restore(file, yes=True)
        assert "--suspended" in caught.value.hint
        with pytest.raises(NotImplementedError):
            backup.restore(file, yes=True, suspended=True)
    monkeypatch.setattr(backup, "reach", Mock(return_value=Applied("kubectl", "Apply")))
    with pytest.raises(NotImplementedError):
        backup.restore(file, yes=True)


def test_a_backup_is_told_by_its_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "backup-state: backup 20261126T020003Z: keys, state\nbackup-state: state is saved in backup 2026\n"
    for name, played in (("reach", None), ("refuse_restoring", None), ("run_job", said)):
        monkeypatch.setattr(backup, name, lambda *_, played=played, **__: played)
    backup.now(stack_file(tmp_path, stacks.existing_full()))
    assert capsys.readouterr().out.startswith("the backup 20261126T020003Z is made;")
