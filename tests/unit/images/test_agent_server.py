"""The configuration agent's answers, and its status as a file."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.common import http_server
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


@pytest.mark.parametrize("sent", [b"", b"GET /config HTTP/1.1\r\nX: y"], ids=["nothing", "half a request"])
def test_who_does_not_say_what_they_want_is_let_go(
    board: tuple[StatusBoard, str], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_server.Handler, "timeout", 0.3)
    _, url = board
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5) as silent:
        silent.sendall(sent)
        assert fetch_status(url)["slurm_version"] == "24.11.5"
        assert silent.recv(1) == b""
