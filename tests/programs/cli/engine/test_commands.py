"""preview, up and destroy where the Pulumi engine makes the cluster, with programs that only note calls."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.errors import REFUSED, USAGE
from cli.preview.document import NOT_COMPARED
from cli.stack import open_stack
from tests import stacks
from tests.fakes.engine import EMPTY, FakeEngine
from tests.fakes.queue_cluster import objects, pending, slurm_conf, without
from tests.graph.state import state_of
from tests.recordings import record
from tests.stacks import with_change
from tests.unit.cli.command_line import call, stack_file


def applied(engine: FakeEngine, directory: Path, before: dict[str, Any], after: dict[str, Any]) -> Path:
    """The file of a stack that was applied as `before` and now says `after`."""
    file = stack_file(directory, before)
    engine.holds(state_of(record(open_stack(file).sections, stack="test")))
    return stack_file(directory, after)


@pytest.fixture
def losing(engine: FakeEngine, tmp_path: Path) -> Path:
    """The file of a stack whose partition `gpu` leaves with all its nodes, and with a job that waits there."""
    before = stacks.existing()
    after = with_change(without(before, "worker_nodes", "gpu"), "partitions.main.pools", ["cpu"])
    engine.runs(objects(before), f"{slurm_conf(before)}# the queue\n{pending(partition='gpu')}\n")
    return applied(engine, tmp_path, before, after)


def at_a_terminal(engine: FakeEngine, file: Path, *words: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "cli.entry", *words, "--config", str(file)]
    return subprocess.run(command, cwd=stacks.ROOT, env={**os.environ, **engine.path}, check=False, **streams)


STEP: dict[str, Any] = {
    "op": "update",
    "urn": "urn:pulumi:test::slurmstack::slurmstack:index:SlurmCluster$kubernetes:core/v1:Service::by-hand",
    "oldState": {"custom": True, "type": "kubernetes:core/v1:Service", "inputs": {"spec": {"type": "NodePort"}}},
    "newState": {"custom": True, "type": "kubernetes:core/v1:Service", "inputs": {"spec": {"type": "ClusterIP"}}},
    "detailedDiff": {"spec.type": {"kind": "update", "inputDiff": True}},
}


def test_a_preview_tells_what_the_state_and_what_the_engine_itself_would_change(
    engine: FakeEngine, tmp_path: Path
) -> None:
    more = with_change(stacks.existing(), "worker_nodes.cpu.size", 5)
    file = applied(engine, tmp_path, stacks.existing(), more)
    urn = next(
        item["urn"] for item in engine.state["deployment"]["resources"] if item["urn"].endswith("::slurm-pool-cpu-pods")
    )
    engine.previews({"steps": [{**STEP, "urn": urn}, STEP]})
    done = call(engine, file, "preview", "--json", "--detailed-exitcode")
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    properties = [{"path": "spec.replicas", "old": 4, "new": 5}]
    changes = [{"action": "update", "kind": "StatefulSet", "name": "cpu", "properties": properties}]
    changes += [{"action": "update", "kind": "Service", "name": "by-hand", "properties": []}]
    assert document["changes"] == changes
    assert (document["outcome"], document["against"]) == ("changes", "engine")
    done = call(engine, file, "preview", "--markdown")
    assert done.returncode == 0, done.stderr
    assert "! update StatefulSet cpu\n-   spec.replicas: 4\n+   spec.replicas: 5\n" in done.stdout
    assert "`pulumi preview --refresh --diff` shows what was changed by hand" in done.stdout


def test_a_preview_of_a_refused_change_lists_it_and_the_jobs_and_fails(
    engine: FakeEngine, losing: Path, tmp_path: Path
) -> None:
    file = stack_file(tmp_path, with_change(dict(open_stack(losing).sections), "jail.storage_class", "other"))
    done = call(engine, file, "preview")
    assert done.returncode == 3
    assert "all users' files and the software in the jail are lost" in done.stdout
    assert "PersistentVolumeClaim jail: spec.storageClassName can never change" in done.stderr
    done = call(engine, file, "preview", "--json", "--detailed-exitcode")
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert NOT_COMPARED in document["notes"]
    assert [(job["id"], job["effect"]) for job in document["jobs"]["jobs"]] == [("8", "never_starts")]
    assert len(document["refusals"]) == 2
    assert not engine.calls("pulumi", "preview"), "a dry run of a claim that shrinks is an error there"


def test_jobs_that_would_be_lost_stop_the_engine_until_somebody_asks_for_it(engine: FakeEngine, losing: Path) -> None:
    done = call(engine, losing, "up", "--yes")
    assert done.returncode == REFUSED
    assert "1 pending job never starts, as the partition leaves with its nodes: 8\n" in done.stdout
    assert "1 job would end or never start: 8" in done.stderr
    assert not engine.calls("pulumi", "up")
    assert not engine.calls("kubectl", "scancel")
    done = call(engine, losing, "up", "--yes", "--kill-jobs")
    assert done.returncode == 0, done.stderr
    assert engine.calls("pulumi", "up")
    (words,) = engine.calls("kubectl", "scancel")
    assert words[-2:] == ["scancel", "--state=pending"]


@pytest.mark.parametrize(("answer", "done"), [("y", ["scancel", "up"]), ("n", [])])
def test_lost_jobs_are_cancelled_before_the_engine_could_wait_for_them_and_only_if_somebody_agrees(
    engine: FakeEngine, losing: Path, answer: str, done: list[str]
) -> None:
    assert call(engine, losing, "up", "--kill-jobs").returncode == USAGE, "there is nobody to ask"
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    told = at_a_terminal(engine, losing, "up", "--kill-jobs", stdin=theirs, capture_output=True)
    os.close(theirs)
    os.close(ours)
    assert b"Cancel 1 job and go on?" in told.stdout
    assert [word for words in engine.all_calls() for word in words if word in {"scancel", "up"}] == done


def test_ctrl_c_leaves_pulumi_the_time_that_it_takes_to_end(engine: FakeEngine, tmp_path: Path) -> None:
    file = applied(engine, tmp_path, stacks.existing(), stacks.existing())
    engine.updates_until_interrupted()
    command = [sys.executable, "-m", "cli.entry", "up", "--yes", "--config", str(file)]
    update = subprocess.Popen(
        command, cwd=stacks.ROOT, env={**os.environ, **engine.path}, start_new_session=True, stderr=subprocess.PIPE
    )
    while not (engine.directory / "updating").exists():
        assert update.poll() is None
        time.sleep(0.05)
    os.killpg(update.pid, signal.SIGINT)  # as a terminal does
    told = update.communicate(timeout=60)[1].decode()
    assert (engine.directory / "ended").exists()
    assert update.returncode == 130, told
    assert "run the same command again to continue" in told


def test_without_pulumi_the_cloud_is_listed_by_kind_and_nothing_is_made(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    done = call(engine, stack_file(tmp_path, {**stacks.nebius(), "protect": False}), "up", "--yes")
    assert done.returncode == 1
    assert "this stack has 10 cloud resources, which kubectl cannot make" in done.stderr
    assert "https://www.pulumi.com/docs/install/" in done.stderr
    assert not engine.calls("kubectl")


def test_a_cloud_whose_cluster_was_never_made_is_destroyed_without_asking_it(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.holds(EMPTY)
    done = call(engine, stack_file(tmp_path, {**stacks.nebius(), "protect": False}), "destroy", "--yes")
    assert done.returncode == 0, done.stderr
    assert engine.calls("pulumi", "destroy")
    assert not engine.calls("kubectl")


def test_a_stack_is_made_without_changing_which_one_the_user_has_selected(engine: FakeEngine, tmp_path: Path) -> None:
    done = call(engine, stack_file(tmp_path, stacks.nebius()), "preview")
    assert done.returncode == 0, done.stderr
    (words,) = engine.calls("pulumi", "init")
    assert "--no-select" in words
    assert not engine.calls("pulumi", "select")
    assert all(words[words.index("--stack") + 1] == "test" for words in engine.calls("pulumi"))
    call(engine, stack_file(tmp_path, stacks.nebius()), "preview")
    assert len(engine.calls("pulumi", "init")) == 1, "it is there now"


UPSERT = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


def killed_while_making(engine: FakeEngine, directory: Path, *types: str) -> Path:
    """The file of a stack whose last update was killed while it made resources of these types."""
    file = applied(engine, directory, stacks.existing(), stacks.existing())
    document = engine.state
    pending = [{"type": "creating", "resource": {"urn": f"urn:{kind}", "type": kind}} for kind in types]
    document["deployment"]["pending_operations"] = pending
    engine.holds(document)
    return file


def test_an_update_that_was_killed_is_repeated_with_what_it_has_made_already(
    engine: FakeEngine, tmp_path: Path
) -> None:
    node_group = "nebius:mk8s/v1:Mk8sV1NodeGroup"
    file = killed_while_making(engine, tmp_path, "kubernetes:core/v1:Secret", "random:index/randomBytes:RandomBytes")
    document = engine.state
    document["deployment"]["pending_operations"].append(
        {"type": "creating", "resource": {"urn": "urn:cloud", "type": node_group}}
    )
    engine.holds(document)
    done = call(engine, file, "up", "--yes")
    assert done.returncode == 0, done.stderr
    assert [item["resource"]["urn"] for item in engine.state["deployment"]["pending_operations"]] == ["urn:cloud"]
    assert len(engine.state["deployment"]["resources"]) == len(document["deployment"]["resources"])
    assert engine.environment("up")[UPSERT] == "true"
    engine.holds({**engine.state, "deployment": {**engine.state["deployment"], "pending_operations": []}})
    call(engine, file, "up", "--yes")
    assert UPSERT not in engine.environment("up"), "what others have made is never taken over otherwise"


@pytest.mark.parametrize(
    ("command", "told"),
    [("up", "an earlier update of 'test' was cut short"), ("destroy", "pulumi cannot change 'test'")],
)
def test_a_stack_that_is_locked_says_how_to_free_it_before_anything_is_touched(
    engine: FakeEngine, tmp_path: Path, command: str, told: str
) -> None:
    file = killed_while_making(engine, tmp_path, "kubernetes:core/v1:Secret")
    stack_file(tmp_path, {**stacks.existing(), "protect": False})
    engine.lock()
    done = call(engine, file, command, "--yes")
    assert done.returncode == 1
    assert told in done.stderr
    assert "error: the stack is currently locked" in done.stderr
    assert f"pulumi cancel --yes --cwd {stacks.ROOT} test" in done.stderr
    assert not engine.calls("pulumi", command)
    assert not engine.calls("kubectl", "delete")
