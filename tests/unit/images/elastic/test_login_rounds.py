"""Looks at the sessions of login nodes, against a Kubernetes API, and nodes that do not answer as they should."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from images.common.http_server import Answer, start_server
from images.common.kubernetes import Kube
from images.elastic import login_rounds
from images.elastic.login_rounds import LoginPod, LoginRounds, ask_sessions, login_pod_of
from images.elastic.logins import Bounds
from images.login import session_server
from slurm.names import SESSIONS_PORT
from tests.fakes.commands import FakeClock
from tests.fakes.kubernetes import FakeKubernetes

SETS = "/apis/apps/v1/namespaces/slurm/statefulsets"

BOUNDS = Bounds(least=1, most=3, sessions_per_node=2, idle_seconds=60.0)


class Logins:
    """Login nodes of a cluster."""

    def __init__(self, fake: FakeKubernetes) -> None:
        self.fake = fake
        self.sessions: dict[str, int | None] = {"login-0": 0}
        self.others: dict[str, LoginPod] = {}
        self.leaving: set[str] = set()
        self.pending: set[str] = set()
        self.synced = True
        self.clock, self.log = FakeClock(), list[str]()
        fake.put(SETS, "login", spec={"replicas": 1, "template": {}})
        self.rounds = LoginRounds(
            kube=Kube(host="127.0.0.1", port=fake.port, namespace="slurm", tls=False),
            bounds=BOUNDS, pods=self.pods, synced=lambda: self.synced, log=self.log.append,
            ask=lambda address: self.sessions[address], clock=self.clock,
        )  # fmt: skip

    def pods(self) -> dict[str, LoginPod]:
        ours = {
            name: LoginPod(
                number=int(name[-1]), leaves=name in self.leaving, runs=name not in self.pending, address=name
            )
            for name in self.sessions
        }
        return ours | self.others

    @property
    def replicas(self) -> int:
        return int(self.fake.collections[SETS]["login"]["spec"]["replicas"])


@pytest.fixture
def logins() -> Iterator[Logins]:
    fake = FakeKubernetes()
    yield Logins(fake)
    fake.close()


def test_it_follows_the_sessions_there_and_back(logins: Logins) -> None:
    logins.sessions["login-0"] = 3
    logins.rounds.look()
    assert logins.replicas == 2
    assert logins.log == ["login: 1 -> 2 nodes, for 3 sessions on 1"]
    logins.sessions |= {"login-1": 1, "login-0": 0}
    for _ in range(13):
        assert logins.replicas == 2
        logins.rounds.look()
        logins.clock.sleep(5.0)
    assert logins.replicas == 1
    changed = [question for question in logins.fake.questions if question.method == "PATCH"]
    assert {question.path for question in changed} == {f"{SETS}/login/scale"}
    assert {question.query["fieldManager"] for question in changed} == {"slurmstack-elastic"}


def test_a_moment_with_more_sessions_begins_the_wait_anew(logins: Logins) -> None:
    logins.fake.put(SETS, "login", spec={"replicas": 2})
    logins.sessions["login-1"] = 0
    for step in range(24):
        logins.sessions["login-0"] = 2 if step == 10 else 0
        logins.rounds.look()
        assert logins.replicas == (2 if step < 23 else 1), step
        logins.clock.sleep(5.0)


def test_a_node_that_says_nothing_or_has_not_started_is_not_taken_for_empty_or_for_full(logins: Logins) -> None:
    logins.fake.put(SETS, "login", spec={"replicas": 2})
    logins.sessions["login-1"] = None
    for _ in range(30):
        logins.rounds.look()
        logins.clock.sleep(5.0)
    assert logins.replicas == 2
    assert logins.log == ["login-1 does not say how many sessions it has: until it does, no login node leaves"]
    logins.pending = {"login-1"}  # waits for a machine: nobody can be logged in there
    for _ in range(30):
        logins.rounds.look()
        logins.clock.sleep(5.0)
    assert logins.replicas == 1


def test_what_was_while_nobody_looked_is_no_room(logins: Logins) -> None:
    logins.fake.put(SETS, "login", spec={"replicas": 2})
    logins.sessions["login-1"] = 0
    logins.rounds.look()
    logins.clock.sleep(3600.0)  # the API server was away
    logins.rounds.look()
    assert logins.replicas == 2


def test_nodes_that_leave_are_not_asked_and_made_up_for(logins: Logins) -> None:
    logins.sessions["login-0"] = 2
    logins.leaving = {"login-0"}
    logins.rounds.look()
    assert logins.replicas == 2


def test_nothing_is_done_before_all_pods_are_known(logins: Logins) -> None:
    logins.sessions["login-0"] = 9
    logins.synced = False
    logins.rounds.look()
    assert logins.replicas == 1


def test_a_pod_is_read_as_kubernetes_has_it() -> None:
    pod: dict[str, Any] = {"metadata": {"name": "login-12"}, "status": {"phase": "Running", "podIP": "10.0.0.7"}}
    assert login_pod_of(pod) == LoginPod(number=12, leaves=False, runs=True, address="10.0.0.7")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert login_pod_of(pod).leaves
    assert login_pod_of({"metadata": {"name": "login-0"}}) == LoginPod(number=0, leaves=False, runs=False, address="")


@pytest.mark.parametrize("name", ["login-0-debug", "login-debug", "copy"])
def test_somebody_s_copy_of_a_login_node_is_none(logins: Logins, name: str) -> None:
    logins.sessions["login-0"] = 2
    logins.others[name] = login_pod_of({"metadata": {"name": name}, "status": {"phase": "Running"}})
    logins.rounds.look()
    assert logins.replicas == 1


def test_the_answer_is_that_of_the_login_node_s_program() -> None:
    assert (login_rounds.PORT, login_rounds.PATH) == (session_server.PORT, session_server.PATH)
    assert session_server.PORT == SESSIONS_PORT
    server = start_server(session_server.Count(lambda: 17), 0)
    port = int(server.server_address[1])
    assert ask_sessions("127.0.0.1", port) == 17
    server.shutdown()
    server.server_close()
    assert ask_sessions("127.0.0.1", port) is None
    for text in ("-1", "1e3", "", "9" * 10, "many"):
        server = start_server(partial(Answer, text=text), 0)
        assert ask_sessions("127.0.0.1", int(server.server_address[1])) is None, text
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_who_answers_without_an_end_is_not_waited_for(drip: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_rounds, "ANSWER_SECONDS", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as server:
        over, waited_for = threading.Event(), list[bool]()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                for _ in range(9000):  # three minutes
                    if over.wait(0.02):
                        return
                    try:
                        connection.sendall(drip)
                    except OSError:
                        return
                waited_for.append(True)

        thread = threading.Thread(target=answer)
        thread.start()
        assert ask_sessions("127.0.0.1", server.getsockname()[1]) is None
        over.set()
        thread.join()
        assert not waited_for


def test_users_who_ask_on_and_on_cost_one_count_and_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of the 16 million addresses that a login node has of its own."""
    monkeypatch.setattr(session_server, "COUNTED_SECONDS", 60.0)
    counts = iter((3, 4))
    count = session_server.Count(lambda: next(counts))
    server = start_server(count, 0, whose=lambda address: session_server.whose(address) if address[-2:] != ".1" else "")
    port = int(server.server_address[1])
    held = [socket.create_connection(("127.0.0.1", port), 5, (f"127.0.{n}.9", 0)) for n in range(40)]
    assert [ask_sessions("127.0.0.1", port) for _ in range(5)] == 5 * [3]
    assert threading.active_count() < 30, "those before are accepted, and wait for no thread"
    assert session_server.whose("10.0.0.7") == "10.0.0.7"
    for connection in held:
        connection.close()
    server.shutdown()
    server.server_close()
