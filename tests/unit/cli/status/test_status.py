"""What `slurmstack status` says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.access.reach import login_address
from cli.status.present import print_status
from cli.status.questions import listed_node
from cli.status.read import Pool, Queue, Status, read_status
from config import load_config
from slurm.conf import config_hash, render
from tests import stacks
from tests.fakes import squeue
from tests.fakes.kubectl import OURS, FakeKubectl, listed
from tests.stacks import with_change

Show = Callable[[Status], str]
"""Prints a status; returns what was printed."""

CONFIG = load_config(stacks.dev())
ACTIVE = {"active": config_hash(render(CONFIG)), "pending": None, "rejected": None}


def node(
    name: str, state: str = "idle", since: str = "Unknown", by: str = "Unknown", reason: str = "none"
) -> dict[str, str]:
    """Columns of sinfo."""
    row = {"NodeHost": name, "StateLong": state, "Timestamp": since, "User": by, "Reason": reason}
    return {**row, "Extra": "(null)"}


NODES = (node("default-0"), node("default-1"))


def pod(name: str, *, owner: str = "StatefulSet", pool: str = "", leaves: bool = False) -> dict[str, Any]:
    metadata = {
        "name": name,
        "ownerReferences": [{"kind": owner}],
        "labels": OURS | ({"slurmstack/pool": pool} if pool else {}),
        **({"deletionTimestamp": "2026-11-23T01:00:00Z"} if leaves else {}),
    }
    status = {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 0}]}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def worker(number: int, *, leaves: bool = False) -> dict[str, Any]:
    return pod(f"default-{number}", pool="default", leaves=leaves)


def pool_of(replicas: int) -> dict[str, Any]:
    return {"kind": "StatefulSet", "metadata": {"name": "default", "labels": OURS}, "spec": {"replicas": replicas}}


CONTROLLER = pod("controller-0")
WORKERS = (worker(0), worker(1), pool_of(2))


JAIL = """Filesystem 1024-blocks Used Available Capacity Mounted on
server:/jail 1000 600 400 60% /jail

{"version": "24.11-c1500fd2bc8b"}
"""


@dataclass(frozen=True, kw_only=True)
class Cluster(FakeKubectl):
    """Answers what `read_status` asks. Its Slurm answers questions by their names: exit status, and text or rows."""

    slurm: dict[str, tuple[int, str | Sequence[dict[str, str]]]] = field(default_factory=dict)
    jail: tuple[str, str] = (JAIL, "")
    refused: str = ""
    """What kubectl says of some kinds of objects."""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        self.asked.append(arguments)
        if arguments[0] == "exec":
            marks = re.search(r"echo ([0-9a-f]{16}) end 0", arguments[-1])
            if marks is None:
                return subprocess.CompletedProcess(arguments, int(bool(self.jail[1])), *self.jail)
            questions = {
                name: line for line in arguments[-1].splitlines() for name in self.slurm if f"ask {name} " in line
            }
            said = ""
            for name, (code, told) in self.slurm.items():
                text = told if isinstance(told, str) else squeue.printed(questions[name], told)
                said += f"{marks[1]} {name} {code}\n{text}\n"
            return subprocess.CompletedProcess(arguments, 0, said + f"{marks[1]} end 0\n" if said else "", self.refused)
        done = super().run(*arguments, **more)
        return subprocess.CompletedProcess(arguments, int(bool(self.refused)), done.stdout, self.refused)


def cluster(
    *items: dict[str, Any],
    sinfo: Sequence[dict[str, str]] = NODES,
    silent: str = "",
    agent: dict[str, Any] | None = None,
    **more: Any,
) -> Cluster:
    """With these pods and other objects, whose Slurm answers so."""
    slurm = {
        "configuration": (0, json.dumps({**(agent or ACTIVE), "slurm_version": "24.11.5"})),
        "sinfo": (1, silent) if silent else (0, sinfo),
        **({} if silent else {"jobs": (0, ())}),
        "database": (0, ""),
    }
    answers = [({"pod,statefulset,service"}, listed(*items), "")]
    return Cluster(answers=answers, **{"slurm": slurm, **more})


def status_of(*items: dict[str, Any], **more: Any) -> Status:
    """Of such a cluster."""
    return read_status(cluster(*items, **more), CONFIG)


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    monkeypatch.setenv("COLUMNS", "200")

    def show(status: Status) -> str:
        print_status(status)
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize(
    ("active", "told"), [(ACTIVE["active"], "active"), ("another", "rejected: unrecognized key: Colour")]
)
def test_a_rejected_configuration_is_said_until_another_is_active(active: str, told: str) -> None:
    rejection = {"hash": "one", "message": "unrecognized key: Colour"}
    found = status_of(CONTROLLER, *WORKERS, agent={"active": active, "rejected": rejection, "pending": None})
    assert (found.configuration, found.healthy) == (told, told == "active")


@pytest.mark.parametrize(
    ("items", "healthy", "told"),
    [
        (WORKERS, True, ""),
        ((*WORKERS, worker(2, leaves=True)), True, ""),
        ((*WORKERS, pod("health-watch-x", owner="ReplicaSet", leaves=True)), True, ""),
        ((*WORKERS, pod("login-0", leaves=True)), False, ""),
        ((worker(0, leaves=True), worker(1), pool_of(2)), False, "workers: 1 of 2 ready\n"),
    ],
    ids=["whole", "left the file", "replaced", "login leaves", "rolled"],
)
def test_workers_are_those_of_the_stack_file_that_do_not_leave(
    show: Show, items: tuple[dict[str, Any], ...], healthy: bool, told: str
) -> None:
    found = status_of(CONTROLLER, *items)
    assert found.healthy == healthy
    shown = show(found)
    assert told in shown
    assert ("workers:" in shown) == bool(told)


def test_an_address_is_the_load_balancer_s_where_there_is_one() -> None:
    for status, address in (({}, "10.0.0.7"), ({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}, "192.0.2.7")):
        spec = {"clusterIP": "10.0.0.7"}
        service = {"kind": "Service", "metadata": {"name": "login", "labels": OURS}, "spec": spec, "status": status}
        assert login_address(FakeKubectl(answers=[({"service"}, listed(service), "")]), "slurm") == address
        assert status_of(CONTROLLER, service).login_address == address


def test_a_slurmctld_that_does_not_answer_and_one_without_nodes_are_told_apart(show: Show) -> None:
    why = "slurm_load_node error: Socket timed out on send/recv operation"
    shown = show(status_of(CONTROLLER, *WORKERS, silent=why))
    assert (
        f"slurmctld does not answer: {why}; see `kubectl --context test logs -n slurm controller-0 -c slurmctld`"
        in shown
    )
    assert "active (the one last taken)" in shown
    assert "accounting" not in shown
    assert status_of(CONTROLLER, *WORKERS, silent=why).slurmdbd_answers is None  # nobody can tell
    assert "slurmctld has no nodes" in show(status_of(CONTROLLER, *WORKERS, sinfo=()))


def test_a_slurmdbd_and_a_queue_that_are_silent_are_said_and_the_rest_is_shown(show: Show) -> None:
    asked = cluster(CONTROLLER, *WORKERS)
    asked.slurm.update(database=(124, ""), jobs=(124, ""))
    found = read_status(asked, CONFIG)
    assert (found.slurmdbd_answers, found.healthy, len(found.nodes)) == (False, False, 2)
    assert (found.queue, found.unread) == (None, {"jobs": "no answer within 8 s"})
    assert "kubectl --context test logs -n slurm slurmdbd-0" in show(found)


def test_nodes_are_counted_by_pool_and_those_that_take_no_jobs_are_listed_with_the_reason(show: Show) -> None:
    when = (datetime.now(UTC) - timedelta(hours=3, minutes=30)).strftime("%Y-%m-%dT%H:%M:%S")
    draining, down = (
        node("default-0", "draining", when, "root", "disk|full"),
        node("old-0", "down*", when, "slurm", "x"),
    )
    found = status_of(CONTROLLER, *WORKERS, sinfo=[down, node("default-1", "mixed"), draining, draining])
    assert found.pools == (
        Pool(name="default", wanted=2, ready=2, allocated=1, drained=1),
        Pool(name="old", wanted=0, ready=0, down=1),
    )
    shown = show(found)
    assert "default-0 draining by root 3 h ago: disk|full" in shown
    assert "default-1" not in shown


def test_the_queue_has_its_reasons(show: Show) -> None:
    lines = [
        ("1", "RUNNING", "None"), ("2_[1-3%1]", "PENDING", "Resources"), ("3", "PENDING", "JobHeldUser"),
        ("5", "COMPLETING", "None"),
    ]  # fmt: skip
    busy = cluster(CONTROLLER, *WORKERS)
    busy.slurm["jobs"] = (0, [dict(zip(("JobArrayID", "State", "Reason"), line, strict=True)) for line in lines])
    found = read_status(busy, CONFIG)
    assert found.queue == Queue(running=1, pending=4, other=1, reasons={"Resources": 3, "JobHeldUser": 1})
    assert "1 running, 4 pending, 1 ending or suspended; waiting for: 3 Resources" in show(found)


HOMES = f"server:/homes {8 * 2**20} {6 * 2**20} {2 * 2**20} 75% /shared/home"


@pytest.mark.parametrize(
    ("jail", "told"),
    [
        ((JAIL, ""), "mounted in login-0, 0.0 of 0.0 GiB free (40 %), populated with version 24.11-c1500fd2bc8b"),
        ((JAIL.replace(" /jail", " /"), ""), "not mounted in login-0"),
        ((JAIL.partition("{")[0], ""), "not populated"),
        ((JAIL.replace("/jail\n\n", f"/jail\n{HOMES}\n\n"), ""), "d2bc8b, homes: 2.0 of 8.0 GiB free (25 %)"),
        (("", 'pods "login-0" is forbidden: no'), "could not read  jail: not allowed to run commands in login-0"),
    ],
    ids=["well", "not mounted", "empty", "homes apart", "no right"],
)
def test_the_jail_is_shown_as_a_pod_sees_it(show: Show, jail: tuple[str, str], told: str) -> None:
    assert told in show(status_of(CONTROLLER, *WORKERS, jail=jail))


def test_what_these_credentials_may_not_read_is_said_and_the_rest_is_shown(show: Show) -> None:
    refusal = 'Error from server (Forbidden): pods is forbidden: User "x" cannot list resource "pods" in API group ""'
    blind = cluster(pool_of(2), refused=refusal, slurm={})
    found = read_status(blind, CONFIG)
    assert (found.unread["pods"], found.healthy) == ("not allowed", False)
    assert "workloads" not in found.unread
    shown = show(found)
    assert "slurmctld does not answer: not allowed to run commands in its pod" in shown
    assert "could not read  pods: not allowed" in shown
    assert "configuration   unknown" in shown


def test_no_text_of_a_node_is_taken_for_another_node_or_moves_the_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root in the jail may set a reason: it hid a drained node behind an idle one."""
    hostile = [
        node("default-0", "drained", by="root", reason="[red]bad[/b]\ndefault-7|idle"),
        node("default-\x1b[2J1", "idle\x07"),
    ]
    found = status_of(CONTROLLER, *WORKERS, sinfo=hostile)
    assert [(one.name, one.state) for one in found.nodes] == [("default- [2J1", "idle "), ("default-0", "drained")]
    print_status(found)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[red]bad[/b] default-7|idle" in shown
    assert listed_node({**hostile[0], "Extra": "[" * 100_000}).confinement == ""


@pytest.mark.parametrize(("up", "healthy"), [(0, False), (3, True)])
def test_an_elastic_pool_is_whole_with_its_least_nodes_and_with_any_more(up: int, healthy: bool) -> None:
    """With one that has just been asked for, and has no machine yet."""
    config = load_config(with_change(stacks.dev(), "worker_nodes.default.size", {"min": 1, "max": 4}))
    active = {**ACTIVE, "active": config_hash(render(config))}
    coming = pod("default-3", owner="PodTemplate", pool="default")
    coming["status"] = {"phase": "Pending"}
    sinfo = [node(f"default-{number}") for number in range(4)]
    there = [pod(f"default-{number}", owner="PodTemplate", pool="default") for number in range(up)]
    assert read_status(cluster(CONTROLLER, *there, coming, agent=active, sinfo=sinfo), config).healthy == healthy
