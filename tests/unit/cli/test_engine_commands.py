"""preview, up, status and kubeconfig where the Pulumi engine makes the cluster, with programs that only note calls."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.recording import record
from cli.stack import open_stack
from tests import stacks
from tests.graph.test_replacements import state_of
from tests.stacks import with_change
from tests.unit.cli.fake_engine import KUBECONFIG, FakeEngine
from tests.unit.cli.test_command import slurmstack, stack_file
from tests.unit.cli.test_effects import NEBIUS

EMPTY: dict[str, Any] = {"version": 3, "deployment": {"manifest": {}}}


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine(tmp_path / "bin")


def call(engine: FakeEngine, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return slurmstack(*arguments, "--config", str(file), **engine.path)


def applied(engine: FakeEngine, directory: Path, before: dict[str, Any], after: dict[str, Any]) -> Path:
    """The file of a stack that was applied as `before` and now says `after`."""
    file = stack_file(directory, before)
    engine.holds(state_of(record(open_stack(file).sections, stack="test")))
    return stack_file(directory, after)


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


@pytest.mark.parametrize("command", ["status", "login", "kubeconfig"])
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


def test_a_kept_file_that_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    kept = tmp_path / ".slurmstack" / "test" / "kubeconfig"
    kept.parent.mkdir(parents=True)
    kept.write_text("[]", encoding="utf-8")
    done = call(engine, stack_file(tmp_path, NEBIUS), "status")
    assert done.returncode == 1
    assert f"{kept} is no kubeconfig" in done.stderr


def test_the_kubeconfig_of_a_cluster_that_is_there_is_the_part_of_its_context(
    engine: FakeEngine, tmp_path: Path
) -> None:
    done = call(engine, stack_file(tmp_path, stacks.existing()), "kubeconfig")
    assert (done.returncode, done.stdout) == (0, "kind: Config\n")
    (words,) = engine.calls("kubectl", "view")
    assert {"--minify", "--flatten"} <= set(words)
    assert words[words.index("--context") + 1] == "prod"


def test_a_preview_begins_with_the_summary_and_ends_with_the_engines_own_words(
    engine: FakeEngine, tmp_path: Path
) -> None:
    more = with_change(stacks.existing(), "worker_nodes.cpu.size", 5)
    done = call(engine, applied(engine, tmp_path, stacks.existing(), more), "preview")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "7 nodes (5 cpu, 2 gpu, 0 plain), 336 CPUs, 16 GPUs"
    assert lines[-1] == "the engine's own words"


def test_a_preview_for_scripts_is_the_engines_with_the_summary_in_it(engine: FakeEngine, tmp_path: Path) -> None:
    file = applied(engine, tmp_path, stacks.existing(), stacks.existing())
    done = call(engine, file, "preview", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["changeSummary"] == {"same": 1}
    assert document["summary"]["nodes"]["total"] == 6
    assert document["summary"]["effects"] == []


def test_a_preview_of_a_refused_change_shows_it_and_fails(engine: FakeEngine, tmp_path: Path) -> None:
    changed = with_change(stacks.existing(), "jail.storage_class", "other")
    done = call(engine, applied(engine, tmp_path, stacks.existing(), changed), "preview")
    assert done.returncode == 1
    assert "all users' files and the software in the jail are lost" in done.stdout
    assert "the engine's own words" in done.stdout
    assert "1 change that cannot be made" in done.stderr


def test_a_refused_change_is_refused_before_the_engine_starts(engine: FakeEngine, tmp_path: Path) -> None:
    changed = with_change(stacks.existing(), "jail.storage_class", "other")
    done = call(engine, applied(engine, tmp_path, stacks.existing(), changed), "up", "--yes")
    assert done.returncode == 1
    assert "spec.storageClassName can never change" in done.stderr
    assert not engine.calls("pulumi", "up")


def test_a_harmless_change_is_left_to_the_engine(engine: FakeEngine, tmp_path: Path) -> None:
    more = with_change(stacks.existing(), "worker_nodes.cpu.size", 5)
    done = call(engine, applied(engine, tmp_path, stacks.existing(), more), "up", "--yes")
    assert done.returncode == 0, done.stderr
    (words,) = engine.calls("pulumi", "up")
    assert {"--refresh", "--yes"} <= set(words)


@pytest.mark.parametrize("command", [["up", "--yes"], ["preview"], ["destroy", "--yes"]])
def test_without_pulumi_the_cloud_is_listed_by_kind_and_nothing_is_made(tmp_path: Path, command: list[str]) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    done = call(engine, stack_file(tmp_path, {**stacks.nebius(), "protect": False}), *command)
    assert done.returncode == 1
    assert "this stack has 10 cloud resources, which kubectl cannot make" in done.stderr
    assert "5 Mk8sV1NodeGroup" in done.stderr
    assert "https://www.pulumi.com/docs/install/" in done.stderr
    assert not engine.calls("kubectl")


def test_the_objects_of_a_made_cluster_are_rendered_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    done = call(engine, stack_file(tmp_path, stacks.nebius()), "render", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "not among them are 10 cloud resources" in done.stderr
    assert "1 Mk8sV1Cluster" in done.stderr
    assert "Service slurm-login-service lacks the annotation nebius.com/load-balancer-allocation-id" in done.stderr
    service = (tmp_path / "out" / "service-login.yaml").read_text(encoding="utf-8")
    assert "allocation-id" not in service
    assert not any("slurm-login-id" in path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("*.yaml"))


def test_a_made_cluster_is_previewed_before_it_is_there(engine: FakeEngine, tmp_path: Path) -> None:
    engine.holds(EMPTY)
    done = call(engine, stack_file(tmp_path, stacks.nebius()), "preview")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6 nodes, 16 GPUs, ")
    assert "jail 2Ti NETWORK_SSD" in done.stdout
    assert done.stdout.endswith("the engine's own words\n")
    assert not engine.calls("kubectl"), "there is no cluster to ask yet"


def test_a_cloud_whose_cluster_was_never_made_is_destroyed_without_asking_it(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.holds(EMPTY)
    done = call(engine, stack_file(tmp_path, {**stacks.nebius(), "protect": False}), "destroy", "--yes")
    assert done.returncode == 0, done.stderr
    assert engine.calls("pulumi", "destroy")
    assert not engine.calls("kubectl")


def test_images_that_are_only_on_this_machine_are_refused_before_anything_is_made(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.holds(EMPTY)
    sections = {name: value for name, value in NEBIUS.items() if name != "images"}
    done = call(engine, stack_file(tmp_path, sections), "up", "--yes")
    assert done.returncode == 2
    assert "images.registry: the cloud's machines cannot pull" in done.stderr
    assert engine.calls("pulumi", "up") == []
