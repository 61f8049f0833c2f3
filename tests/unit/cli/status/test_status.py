"""What `slurmstack status` says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.access.addresses import login_address, rest_address
from cli.status.present import print_status
from cli.status.read import Pod, SlurmNode, Status, Workers, read_status
from config import load_config
from slurm.conf import config_hash, render
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed

CONFIG = load_config(stacks.dev())
ACTIVE = {"active": config_hash(render(CONFIG)), "pending": None, "rejected": None}
BAD = {"slurm.conf": "Colour=red"}
NODES = "default-0|idle|none|\ndefault-1|idle|none|\n"


def pod(name: str, *, owner: str = "StatefulSet", pool: str = "", leaves: bool = False) -> dict[str, Any]:
    metadata = {
        "name": name,
        "ownerReferences": [{"kind": owner}],
        "labels": {"slurmstack/pool": pool} if pool else {},
        **({"deletionTimestamp": "2026-11-23T01:00:00Z"} if leaves else {}),
    }
    status = {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 0}]}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def worker(number: int, *, leaves: bool = False) -> dict[str, Any]:
    return pod(f"default-{number}", pool="default", leaves=leaves)


def pool_of(replicas: int) -> dict[str, Any]:
    return {"kind": "StatefulSet", "metadata": {"name": "default"}, "spec": {"replicas": replicas}}


CONTROLLER = pod("controller-0")
WORKERS = (worker(0), worker(1), pool_of(2))


def status_of(
    *items: dict[str, Any], sinfo: str = NODES, silent: str = "", agent: dict[str, Any] | None = None
) -> Status:
    """Of a cluster with these pods and StatefulSets, whose Slurm answers so."""
    return read_status(FakeKubectl(answers=answers_of(*items, sinfo=sinfo, silent=silent, agent=agent)), CONFIG)


def answers_of(
    *items: dict[str, Any], sinfo: str = NODES, silent: str = "", agent: dict[str, Any] | None = None
) -> list[tuple[set[str], Any, str]]:
    return [
        ({"pod,statefulset"}, listed(*items), ""),
        ({"exec", "sinfo"}, sinfo, silent),
        ({"exec", "cat"}, agent or ACTIVE, ""),
        ({"service"}, listed(), ""),
        ({"configmap"}, listed({"data": BAD}), ""),
    ]


@pytest.mark.parametrize(
    ("active", "rejected", "told"),
    [
        (ACTIVE["active"], config_hash(BAD), "active (a later one was rejected: unrecognized key: Colour; run `up`)"),
        (ACTIVE["active"], "one before", "active"),
        ("another", config_hash(BAD), "rejected: unrecognized key: Colour"),
    ],
    ids=["corrected but not applied", "long gone", "not corrected"],
)
def test_a_rejected_configuration_is_said_as_long_as_the_cluster_is_asked_for_it(
    active: str, rejected: str, told: str
) -> None:
    rejection = {"hash": rejected, "message": "unrecognized key: Colour"}
    found = status_of(CONTROLLER, *WORKERS, agent={"active": active, "rejected": rejection, "pending": None})
    assert (found.configuration, found.healthy) == (told, told == "active")


def asked_with_sinfo() -> list[str]:
    """The command that runs in the controller's pod."""
    asked: list[tuple[str, ...]] = []

    class Noting(FakeKubectl):
        def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
            asked.append(arguments)
            return super().run(*arguments, **more)

    read_status(Noting(answers=answers_of(*WORKERS)), CONFIG)
    (found,) = [words for words in asked if "sinfo" in words]
    return list(found[found.index("--") + 1 :])


def printed(status: Status, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    print_status(status)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("items", "healthy", "told"),
    [
        (WORKERS, True, ""),
        ((*WORKERS, worker(2, leaves=True)), True, ""),
        ((*WORKERS, pod("health-watch-x", owner="ReplicaSet", leaves=True)), True, ""),
        ((*WORKERS, pod("login-0", leaves=True)), False, ""),
        ((worker(0, leaves=True), worker(1), pool_of(2)), False, "workers: 1 of 2 ready\n"),
        ((worker(0, leaves=True),), False, "workers: 0 of 2 ready: the cluster was told to have fewer (default). A d"),
        ((worker(0), worker(1, leaves=True), pool_of(1)), False, "workers: 1 of 2 ready: the cluster was told to"),
        ((worker(0), worker(1), pool_of(1)), False, "workers: 2 of 2 ready: the cluster was told to have fewer"),
    ],
    ids=["whole", "left the file", "replaced", "login leaves", "rolled", "destroyed", "shrinks", "will shrink"],
)
def test_workers_are_those_of_the_stack_file_that_do_not_leave(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    items: tuple[dict[str, Any], ...],
    healthy: bool,
    told: str,
) -> None:
    found = status_of(CONTROLLER, *items)
    assert found.healthy == healthy
    shown = printed(found, monkeypatch, capsys)
    assert told in shown
    assert ("workers:" in shown) == bool(told)


@pytest.mark.parametrize(
    ("status", "address"),
    [({}, "10.0.0.7"), ({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}, "192.0.2.7")],
    ids=["inside", "load balancer"],
)
def test_an_address_is_the_load_balancer_s_where_there_is_one(status: dict[str, Any], address: str) -> None:
    kubectl = FakeKubectl(answers=[({"service"}, listed({"spec": {"clusterIP": "10.0.0.7"}, "status": status}), "")])
    assert login_address(kubectl, "slurm") == address
    assert rest_address(kubectl, "slurm") == f"https://{address}:6820"


def test_without_the_service_there_is_no_address() -> None:
    kubectl = FakeKubectl(answers=[({"service", "rest"}, listed(), "")])
    assert rest_address(kubectl, "slurm") is None


def test_a_slurmctld_that_does_not_answer_and_one_without_nodes_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "slurm_load_node error: Socket timed out on send/recv operation"
    shown = printed(status_of(CONTROLLER, *WORKERS, silent=why), monkeypatch, capsys)
    assert f"slurmctld does not answer: {why}; see `kubectl logs -n slurm controller-0 -c slurmctld`" in shown
    assert "configuration: active (the one last taken)" in shown
    assert "accounting:" not in shown
    assert status_of(CONTROLLER, *WORKERS, silent=why).slurmdbd_answers is None  # nobody can tell
    assert "slurmctld has no nodes" in printed(status_of(CONTROLLER, *WORKERS, sinfo=""), monkeypatch, capsys)


@pytest.mark.parametrize("broken", ["", "sacctmgr", "sinfo"])
def test_slurmdbd_is_asked_beside_slurmctld_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    answers = broken != "sacctmgr"
    for name in ("sacctmgr", "sinfo"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho 'a|idle|none|'; exit {int(name == broken)}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    words = asked_with_sinfo()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == int(broken == "sinfo")
    found = status_of(CONTROLLER, *WORKERS, sinfo=NODES + done.stdout)
    assert (found.slurmdbd_answers, found.healthy) == (answers, answers)
    shown = printed(found, monkeypatch, capsys)
    assert ("accounting: slurmdbd does not answer; see `kubectl logs -n slurm slurmdbd-0" in shown) == (not answers)


@pytest.mark.parametrize(
    "reason",
    ["health/clock [node]: 90 s off", "[/b] disk [red]bad[/red]", "a\\[b] :gear:"],
    ids=["our own", "markup", "backslash and emoji"],
)
def test_what_comes_from_outside_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    odd = "[red]x[/b]"
    status = Status(
        namespace="slurm",
        pods=(Pod(name=odd, phase=odd, ready=False, restarts=0, node=odd),),
        workers=Workers(ready=1, wanted=1),
        slurmctld="",
        slurmdbd_answers=True,
        nodes=(SlurmNode(name=odd, state=odd, reason=reason), SlurmNode(name="w-1", state="drained", reason=reason)),
        configuration=f"rejected: {reason}",
        login_address=odd,
        rest_address=odd,
        healthy=False,
    )
    shown = printed(status, monkeypatch, capsys)
    assert shown.count(reason) == 3
    assert shown.count(odd) == 7
