"""The command as its user meets it: exit statuses and messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.command_line import slurmstack, stack_file


@pytest.mark.parametrize("command", [["validate"], ["up", "--yes"]])
def test_every_command_lists_all_errors_of_a_stack_file_and_exits_with_2(tmp_path: Path, command: list[str]) -> None:
    sections = with_change(stacks.dev(), "worker_nodes.default.size", -1)
    sections["partitionss"] = {}
    done = slurmstack(*command, "--config", str(stack_file(tmp_path, sections)))
    assert done.returncode == 2
    assert "2 errors" in done.stderr
    assert "worker_nodes.default.size: -1" in done.stderr
    assert "did you mean 'partitions'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_rendering_needs_no_cluster_and_keeps_its_keys(tmp_path: Path) -> None:
    file = stack_file(tmp_path, stacks.dev())
    for directory in ("first", "second"):
        done = slurmstack(
            "render", "--config", str(file), "--output", str(tmp_path / directory), KUBECONFIG="/nonexistent"
        )
        assert done.returncode == 0, done.stderr
    first = (tmp_path / "first" / "40-secret-munge-key.yaml").read_text(encoding="utf-8")
    assert first == (tmp_path / "second" / "40-secret-munge-key.yaml").read_text(encoding="utf-8")


def test_secrets_can_be_written_apart_from_what_is_committed(tmp_path: Path) -> None:
    file, out, apart = stack_file(tmp_path, stacks.dev()), tmp_path / "out", tmp_path / "apart"
    slurmstack("render", "--config", str(file), "--output", str(out))
    assert list(out.glob("*-secret-*"))

    done = slurmstack("render", "--config", str(file), "--output", str(out), "--secrets", str(apart))

    assert not list(out.glob("*-secret-*"))
    written = [*apart.glob("*.yaml")]
    assert {path.name.split("-")[1] for path in written} == {"secret"}
    assert f"{len(written)} Secrets, in the clear, in {apart}" in done.stdout


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "there", "context": {"cluster": "c", "user": "u"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u"}],
    }
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    sections = with_change(
        stacks.dev(), "cloud", {"kind": "existing", "context": "missing", "kubeconfig": str(kubeconfig)}
    )
    done = slurmstack("up", "--yes", "--engine", "kubectl", "--config", str(stack_file(tmp_path, sections)))
    assert done.returncode == 2
    assert "'missing' is not a context" in done.stderr
    sections["cloud"]["context"] = "there"
    for command in (["preview", "--engine", "kubectl"], ["status"]):
        done = slurmstack(*command, "--config", str(stack_file(tmp_path, sections)))
        assert done.returncode == 1
        assert "the cluster of context 'there' does not answer" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_the_exit_status_of_a_command_is_that_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.entry", "local", "status"]
    done = subprocess.run(
        command, cwd=stacks.ROOT, env={**os.environ, "SLURMSTACK_LOCAL_DIR": str(tmp_path)}, check=False
    )
    assert done.returncode == 1


def test_without_a_local_cluster_the_way_to_one_is_named(tmp_path: Path) -> None:
    done = slurmstack("up", "--yes", "--engine", "kubectl", SLURMSTACK_LOCAL_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "the local cluster is not running" in done.stderr
    assert "slurmstack local up" in done.stderr
