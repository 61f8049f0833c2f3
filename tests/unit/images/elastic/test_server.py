"""Jobs that wait for their nodes: told when these are up, let go when nobody waits any more, and never too many."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from images.elastic import rounds, server
from images.elastic.rounds import Ready
from images.elastic.view import Node

UP = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD"}))
OFF = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))


@pytest.fixture
def ready() -> Ready:
    ready = Ready()
    ready.put({"gpu-0": OFF})
    return ready


@pytest.fixture
def port(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(server, "MOST_WAITING", 2)
    monkeypatch.setattr(rounds, "ASKED_SECONDS", 0.05)
    running = server.start(ready, lambda: None, port=0)
    yield int(running.server_address[1])
    running.shutdown()
    running.server_close()


def ask(port: int, nodes: str = "gpu-0") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.sendall(f"GET /ready?nodes={nodes} HTTP/1.0\r\n\r\n".encode())
    return connection


def answer(connection: socket.socket) -> str:
    with connection:
        return connection.makefile().readline().split(" ", 1)[1].strip()


def test_a_job_is_told_when_its_nodes_are_up(ready: Ready, port: int) -> None:
    waits = ask(port)
    time.sleep(0.2)
    ready.put({"gpu-0": UP})
    assert answer(waits) == "200 OK"


def test_beyond_a_number_none_waits_and_who_went_away_makes_room(port: int) -> None:
    first, second = ask(port), ask(port)
    time.sleep(0.2)
    assert answer(ask(port)) == "503 Service Unavailable"
    first.close()
    second.close()
    time.sleep(0.5)
    third = ask(port)
    third.settimeout(0.3)
    with pytest.raises(TimeoutError):
        third.recv(1)
    third.close()


def test_all_are_let_go_when_nobody_knows_of_any_node(ready: Ready, port: int) -> None:
    waits = ask(port)
    time.sleep(0.2)
    ready.give_up()
    assert answer(waits) == "410 Gone"


@pytest.mark.parametrize("nodes", ["a[0-999999999]", ",".join(f"a[{n}0000-{n}9999]" for n in range(1, 9))])
def test_a_list_of_more_nodes_than_there_can_be_is_not_read(port: int, nodes: str) -> None:
    assert not server.is_short(nodes)
    assert answer(ask(port, nodes)) == "200 OK"


def test_a_list_of_thousands_is_read() -> None:
    assert server.is_short("gpu-[0-999,2000-4999],cpu-[0-7]")
