"""Commands that look, where the Pulumi engine makes the cluster."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.engine import EMPTY, KUBECONFIG, FakeEngine
from tests.unit.cli.command_line import call, stack_file
from tests.unit.cli.nebius_stack import NEBIUS


def test_status_asks_the_cluster_that_the_stack_made(engine: FakeEngine, tmp_path: Path) -> None:
    engine.holds(EMPTY, kubeconfig=KUBECONFIG)
    done = call(engine, stack_file(tmp_path, NEBIUS), "status")
    assert "nothing runs in namespace slurm" in done.stdout
    kept = str(tmp_path / ".slurmstack" / "test" / "kubeconfig")
    assert Path(kept).stat().st_mode & 0o777 == 0o600
    assert engine.calls("kubectl")
    assert all(words[:4] == ["--kubeconfig", kept, "--context", "nebius-slurm"] for words in engine.calls("kubectl"))


def test_without_pulumi_a_kubeconfig_that_was_kept_serves(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    file = stack_file(tmp_path, NEBIUS)
    done = call(engine, file, "status")
    assert done.returncode == 1
    kept = tmp_path / ".slurmstack" / "test" / "kubeconfig"
    assert f"copy what `pulumi stack output kubeconfig` prints elsewhere to {kept}" in done.stderr
    kept.parent.mkdir(parents=True)
    kept.write_text(KUBECONFIG, encoding="utf-8")
    assert "nothing runs in namespace slurm" in call(engine, file, "status").stdout
