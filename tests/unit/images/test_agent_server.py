"""How much one client may take of the configuration agent: users reach the port. And its status as a file."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from images.common import http_server
from images.common.http_server import MOST_CONNECTIONS
from images.controller.await_config import fetch_status
from images.controller.server import Status, StatusBoard, start_server


@pytest.fixture
def board() -> Iterator[tuple[StatusBoard, str]]:
    found = StatusBoard(Status(slurm_version="24.11.5"))
    server = start_server(found, 0)
    yield found, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_status_is_in_a_file_too_and_a_full_volume_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "configuration.json"
    found = StatusBoard(Status(slurm_version="24.11.5"), file)
    found.set(Status(active="a"))
    assert json.loads(file.read_text())["active"] == "a"
    gone = StatusBoard(Status(), tmp_path / "no-such-directory/x")
    gone.set(Status(active="b"))
    assert gone.get().active == "b"


def connect(url: str, stack: ExitStack) -> socket.socket:
    """As another pod than the one that asks with `fetch_status`."""
    port = int(url.rpartition(":")[2])
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), 5, source_address=("127.0.0.2", 0)))


def is_closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_one_address_has_a_few_connections_and_keeps_nobody_else_out(board: tuple[StatusBoard, str]) -> None:
    _, url = board
    with ExitStack() as stack:
        silent = [connect(url, stack) for _ in range(MOST_CONNECTIONS)]
        more = [connect(url, stack) for _ in range(50)]

        assert all(is_closed(connection, 2) for connection in more)
        assert fetch_status(url)["slurm_version"] == "24.11.5"
        assert not is_closed(silent[0], 0.1)


@pytest.mark.parametrize("sent", [b"", b"GET /config HTTP/1.1\r\nX: y"], ids=["nothing", "half a request"])
def test_who_does_not_say_what_they_want_in_time_is_let_go(
    board: tuple[StatusBoard, str], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
    _, url = board
    with ExitStack() as stack:
        silent = [connect(url, stack) for _ in range(MOST_CONNECTIONS)]
        for connection in silent:
            connection.sendall(sent)
        assert all(is_closed(connection, 5) for connection in silent)
