"""`slurmstack validate --against`, as a pipeline for pull requests calls it."""

from __future__ import annotations

import json
from pathlib import Path

from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.command_line import slurmstack, stack_file


def files(directory: Path, after: dict[str, object]) -> tuple[str, str, str, str]:
    """Options for the present file and for an earlier one."""
    new, old = directory / "new", directory / "old"
    new.mkdir()
    old.mkdir()
    return "--config", str(stack_file(new, after)), "--against", str(stack_file(old, stacks.existing()))


def test_a_change_that_loses_data_fails_the_pipeline_and_says_which(tmp_path: Path) -> None:
    options = files(tmp_path, with_change(stacks.existing(), "jail.storage_class", "other"))
    done = slurmstack("validate", *options)
    assert done.returncode == 3
    assert "replace PersistentVolumeClaim jail" in done.stdout
    assert "-   spec.storageClassName: shared\n+   spec.storageClassName: other\n" in done.stdout
    assert "all users' files and the software in the jail are lost" in done.stdout
    assert "spec.storageClassName can never change" in done.stderr


def test_a_script_gets_the_list_as_json(tmp_path: Path) -> None:
    options = files(tmp_path, with_change(stacks.existing(), "jail.size", "1Gi"))
    done = slurmstack("validate", "--json", *options)
    assert done.returncode == 3
    data = json.loads(done.stdout)
    assert (data["refused"], data["outcome"]) == (1, "refused")
    properties = [{"path": "spec.resources.requests.storage", "old": "1Ti", "new": "1Gi"}]
    change = {"action": "update", "kind": "PersistentVolumeClaim", "name": "jail", "properties": properties}
    assert data["changes"] == [change]
    assert "cannot shrink" in data["effects"][0]["refused"]


def test_an_earlier_file_that_is_not_valid_is_named(tmp_path: Path) -> None:
    options = files(tmp_path, stacks.existing())
    stack_file(tmp_path / "old", with_change(stacks.existing(), "worker_nodes.cpu.size", -1))
    done = slurmstack("validate", *options)
    assert done.returncode == 2
    assert f"--against {options[3]}: worker_nodes.cpu.size: -1" in done.stderr


def test_a_comment_needs_no_cluster_and_no_keys_and_a_script_learns_that_there_are_changes(tmp_path: Path) -> None:
    options = files(tmp_path, with_change(stacks.existing(), "slurm.settings.DefMemPerCPU", 1024))
    done = slurmstack("validate", "--markdown", "--detailed-exitcode", *options, KUBECONFIG="/nonexistent", HOME="/")
    assert done.returncode == 4, done.stderr
    assert done.stdout.startswith("<!-- slurmstack preview of test -->\n")
    assert "-       DefMemPerCPU=512\n+       DefMemPerCPU=1024\n" in done.stdout
    assert "Secret" not in done.stdout, "generated keys are no difference"
    assert not list(tmp_path.rglob(".slurmstack")), "no keys were made"
