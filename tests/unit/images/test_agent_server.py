"""What the configuration agent answers, and how much one client may take of it: users reach the port."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from images.common import http_server
from images.common.http_server import MOST_CONNECTIONS
from images.controller.await_config import fetch_status
from images.controller.server import Rejection, Status, StatusBoard, start_server


@pytest.fixture
def board() -> Iterator[tuple[StatusBoard, str]]:
    found = StatusBoard(Status(slurm_version="24.11.5"))
    server = start_server(found, 0)
    yield found, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_agent_answers_its_status(board: tuple[StatusBoard, str]) -> None:
    found, url = board
    assert fetch_status(url) == {"active": None, "rejected": None, "pending": None, "slurm_version": "24.11.5"}

    found.set(Status(active="a", rejected=Rejection(hash="b", message="m"), slurm_version="24.11.5"))

    assert fetch_status(url)["rejected"] == {"hash": "b", "message": "m"}


def test_the_status_is_in_a_file_too_and_a_full_volume_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "configuration.json"
    found = StatusBoard(Status(slurm_version="24.11.5"), file)
    found.set(Status(active="a"))
    assert json.loads(file.read_text())["active"] == "a"
    gone = StatusBoard(Status(), tmp_path / "no-such-directory/x")
    gone.set(Status(active="b"))
    assert gone.get().active == "b"


def test_the_agent_is_healthy_and_knows_nothing_else(board: tuple[StatusBoard, str]) -> None:
    _, url = board
    with urllib.request.urlopen(f"{url}/healthz") as response:
        assert response.status == 200
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{url}/other")
    assert error.value.code == 404


def test_all_that_ask_for_the_same_text_share_its_bytes() -> None:
    text = "é" * 100
    first, second = (http_server.Answer("text/plain", text) for _ in range(2))
    assert first.body == text.encode()
    assert first.body is second.body


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


def test_an_address_is_not_kept_out_for_threads_that_could_not_start(
    board: tuple[StatusBoard, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = board

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with ExitStack() as stack:
        with monkeypatch.context() as full:
            full.setattr(ThreadingHTTPServer, "process_request", no_thread)
            assert all(is_closed(connect(url, stack), 2) for _ in range(MOST_CONNECTIONS))
        assert fetches_from_the_same_address(url, stack)


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
        assert fetches_from_the_same_address(url, stack)


def fetches_from_the_same_address(url: str, stack: ExitStack) -> bool:
    """Its places are free again, a moment after its connections were closed."""
    for _ in range(50):
        again = connect(url, stack)
        again.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        try:
            if again.recv(100).startswith(b"HTTP/1.0 200"):
                return True
        except ConnectionResetError:
            pass
        time.sleep(0.1)
    return False


def test_a_request_by_drops_takes_no_longer(board: tuple[StatusBoard, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
    _, url = board
    with ExitStack() as stack:
        slow = connect(url, stack)
        for byte in b"GET /config HTTP/1.1\r\nX: " + b"y" * 100:
            try:
                slow.sendall(bytes([byte]))
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("it was listened to for six seconds")


def test_a_head_without_end_is_not_kept(board: tuple[StatusBoard, str]) -> None:
    _, url = board
    with ExitStack() as stack:
        endless = connect(url, stack)
        endless.sendall(b"GET /config?" + b"y" * 8192)
        assert endless.recv(100).startswith(b"HTTP/1.0 ") or is_closed(endless, 2)
