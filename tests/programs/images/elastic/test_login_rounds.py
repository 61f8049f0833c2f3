"""Looks at the sessions of login nodes, against a Kubernetes API, and nodes that do not answer as they should."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from images.common.http_server import start_server
from images.elastic.login_rounds import ask_sessions
from images.login import session_server


def test_users_who_ask_on_and_on_cost_one_count_and_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of the 16 million addresses that a login node has of its own."""
    monkeypatch.setattr(session_server, "COUNTED_SECONDS", 60.0)
    counts = iter((3, 4))
    count = session_server.Count(lambda: next(counts))
    server = start_server(count, 0, whose=lambda address: session_server.whose(address) if address[-2:] != ".1" else "")
    port = int(server.server_address[1])
    held = [socket.create_connection(("127.0.0.1", port), 5, (f"127.0.{n}.9", 0)) for n in range(40)]
    time.sleep(0.2)
    assert threading.active_count() < 30
    assert [ask_sessions("127.0.0.1", port) for _ in range(5)] == 5 * [3]
    assert session_server.whose("10.0.0.7") == "10.0.0.7"
    for connection in held:
        connection.close()
    server.shutdown()
    server.server_close()
