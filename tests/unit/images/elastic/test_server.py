"""Jobs that wait for their nodes: told when these are up, let go when nobody waits any more, and never too many."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from urllib.parse import quote, unquote

import pytest

from images.common.elastic.view import Node
from images.common.slurm_records import expand
from images.elastic import rounds, server
from images.elastic.rounds import Ready
from tests.programs.waiting import wait_until

UP = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD"}))
OFF = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))


@pytest.fixture
def ready() -> Ready:
    ready = Ready()
    ready.put({"gpu-0": OFF})
    return ready


@pytest.fixture
def looks() -> list[None]:
    """One for each look that was asked for."""
    return []


@pytest.fixture
def port(ready: Ready, looks: list[None], monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(server, "MOST_WAITING", 2)
    monkeypatch.setattr(rounds, "ASKED_SECONDS", 0.05)
    running = server.start(ready, lambda: looks.append(None), port=0)
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


def waits_on(connection: socket.socket) -> bool:
    with connection:
        connection.settimeout(0.3)
        try:
            connection.recv(1)
        except TimeoutError:
            return True
        return False


def test_a_job_is_told_when_its_nodes_are_up(ready: Ready, looks: list[None], port: int) -> None:
    waits = ask(port)
    wait_until(lambda: looks)
    ready.put({"gpu-0": UP})
    assert answer(waits) == "200 OK"
    assert answer(ask(port)) == "200 OK"
    assert looks == [None], "one for the job whose node was off, none for that whose node was up"


def test_beyond_a_number_none_waits_and_who_went_away_makes_room(looks: list[None], port: int) -> None:
    first, second = ask(port), ask(port)
    wait_until(lambda: len(looks) == 2)
    assert answer(ask(port)) == "503 Service Unavailable"
    first.close()
    second.close()
    wait_until(lambda: waits_on(ask(port)))


def test_all_are_let_go_when_nobody_knows_of_any_node(ready: Ready, port: int) -> None:
    waits = ask(port)
    wait_until(lambda: ready._changed._waiters)  # type: ignore[attr-defined]
    ready.give_up()
    assert answer(waits) == "410 Gone"


@pytest.mark.parametrize(
    "nodes",
    [
        "a[0-999999999]",
        ",".join(f"a[{n}0000-{n}9999]" for n in range(1, 9)),
        # As Python, but not Slurm, writes a number; and names that are long themselves.
        "a[0-9_999_999]", "a[5%20-9999999]", "a[0-0000000000009999999]", "a[0-\u0669\u0669\u0669\u0669\u0669\u0669]",
        f"{'a' * 9999}[0-60000]", f"a[{'0' * 4000}-60000]",
    ],
)  # fmt: skip
def test_a_list_of_more_nodes_than_there_can_be_is_not_read(port: int, nodes: str) -> None:
    assert not server.is_short(unquote(nodes), 65536)
    assert answer(ask(port, quote(nodes, safe="%"))) == "200 OK"


def test_a_list_of_thousands_is_read() -> None:
    hosts = "gpu-[0-999,2000-4999],cpu-[0-7],login-0,a.b_c-[001-010]"
    assert server.is_short(hosts, 65536)
    assert len(expand(hosts)) == 4019
    assert server.is_short(hosts, 4019)
    assert not server.is_short(hosts, 4018)


def test_a_list_of_more_nodes_than_there_are_is_not_read(ready: Ready, port: int) -> None:
    assert answer(ask(port, "gpu-[0-1]")) == "200 OK"
    ready.put({name: dataclasses.replace(OFF, name=name) for name in ("gpu-0", "gpu-1")})
    assert waits_on(ask(port, "gpu-[0-1]"))
