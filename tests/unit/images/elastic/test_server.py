"""Jobs that wait for their nodes: told when these are up, let go when they do not come, and never too many."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from images.common.http_server import start_server
from images.elastic import program
from images.elastic.nodes import Node
from images.elastic.program import Ready
from tests.programs.waiting import wait_until

UP = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD"}))
AWAITED = Node(name="gpu-0", states=frozenset({"ALLOCATED", "CLOUD", "POWERED_DOWN"}))
OFF = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))


@pytest.fixture
def ready(looks: list[None], monkeypatch: pytest.MonkeyPatch) -> Ready:
    monkeypatch.setattr(program, "MOST_WAITING", 2)
    ready = Ready(lambda: looks.append(None))
    ready.put({"gpu-0": AWAITED})
    return ready


@pytest.fixture
def looks() -> list[None]:
    """One for each look that was asked for."""
    return []


@pytest.fixture
def port(ready: Ready) -> Iterator[int]:
    running = start_server(ready.answer, port=0)
    yield int(running.server_address[1])
    running.shutdown()
    running.server_close()


def ask(port: int, nodes: str = "gpu-0") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.sendall(f"GET /ready/{nodes} HTTP/1.0\r\n\r\n".encode())
    return connection


def answer(connection: socket.socket) -> str:
    with connection:
        return connection.makefile().readline().split(" ", 1)[1].strip()


def test_a_job_is_told_when_its_nodes_are_up(ready: Ready, looks: list[None], port: int) -> None:
    waits = ask(port)
    wait_until(lambda: looks)
    for _ in range(3):
        ready.put({"gpu-0": AWAITED})
    ready.put({"gpu-0": UP})
    assert answer(waits) == "200 OK"
    assert answer(ask(port)) == "200 OK"
    assert looks == [None], "one for the job whose node was off, none for that whose node was up"


def test_beyond_a_number_none_waits_and_a_node_that_does_not_come_lets_them_go(
    ready: Ready, looks: list[None], port: int
) -> None:
    first, second = ask(port), ask(port)
    wait_until(lambda: len(looks) == 2)
    assert answer(ask(port)) == "503 Service Unavailable"
    for _ in range(2):  # of a job that is cancelled before Slurm has powered it up
        ready.put({"gpu-0": OFF})
    assert [answer(first), answer(second)] == ["410 Gone"] * 2


def test_all_are_let_go_when_nobody_knows_of_any_node(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld has not answered for long."""
    monkeypatch.setattr(program, "SILENT_SECONDS", 0.1)
    assert answer(ask(port)) == "410 Gone"
