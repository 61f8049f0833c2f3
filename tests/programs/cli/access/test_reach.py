"""status, login and kubeconfig where the Pulumi engine makes the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import stacks
from tests.fakes.engine import EMPTY, KUBECONFIG, FakeEngine
from tests.unit.cli.command_line import call, stack_file
from tests.unit.cli.nebius_stack import NEBIUS


def test_the_kubeconfig_of_a_made_cluster_comes_from_its_stack_and_is_kept_for_its_owner(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.holds(EMPTY, kubeconfig=KUBECONFIG)
    file = stack_file(tmp_path, NEBIUS)
    done = call(engine, file, "kubeconfig")
    assert done.returncode == 0, done.stderr
    assert done.stdout == KUBECONFIG
    kept = tmp_path / ".slurmstack" / "test" / "kubeconfig"
    assert kept.read_text(encoding="utf-8") == KUBECONFIG
    assert kept.stat().st_mode & 0o777 == 0o600
    done = call(engine, file, "kubeconfig", "--output", str(tmp_path / "mine"))
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600


def test_status_asks_the_cluster_that_the_stack_made(engine: FakeEngine, tmp_path: Path) -> None:
    engine.holds(EMPTY, kubeconfig=KUBECONFIG)
    done = call(engine, stack_file(tmp_path, NEBIUS), "status")
    assert "nothing runs in namespace slurm" in done.stdout
    kept = str(tmp_path / ".slurmstack" / "test" / "kubeconfig")
    assert engine.calls("kubectl")
    assert all(words[:4] == ["--kubeconfig", kept, "--context", "nebius-slurm"] for words in engine.calls("kubectl"))


@pytest.mark.parametrize("command", ["status", "kubeconfig"])
def test_a_cluster_that_is_not_made_yet_is_said_to_be_so(engine: FakeEngine, tmp_path: Path, command: str) -> None:
    engine.holds(EMPTY)
    done = call(engine, stack_file(tmp_path, NEBIUS), command)
    assert done.returncode == 1
    assert "the stack 'test' has no cluster yet" in done.stderr
    assert "slurmstack up" in done.stderr


def test_without_pulumi_a_kubeconfig_that_was_kept_serves(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    file = stack_file(tmp_path, NEBIUS)
    done = call(engine, file, "status")
    assert done.returncode == 1
    kept = tmp_path / ".slurmstack" / "test" / "kubeconfig"
    assert f"copy what `slurmstack kubeconfig` prints on a machine that has it to {kept}" in done.stderr
    kept.parent.mkdir(parents=True)
    kept.write_text(KUBECONFIG, encoding="utf-8")
    assert "nothing runs in namespace slurm" in call(engine, file, "status").stdout


def test_the_kubeconfig_of_a_cluster_that_is_there_is_the_part_of_its_context(
    engine: FakeEngine, tmp_path: Path
) -> None:
    done = call(engine, stack_file(tmp_path, stacks.existing()), "kubeconfig")
    assert (done.returncode, done.stdout) == (0, "kind: Config\n")
    (words,) = engine.calls("kubectl", "view")
    assert {"--minify", "--flatten"} <= set(words)
    assert words[words.index("--context") + 1] == "prod"
