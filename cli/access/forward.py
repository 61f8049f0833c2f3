"""A port of this machine that leads to a Service: `kubectl port-forward`."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cli.errors import Failure
from cli.kubectl.client import Kubectl


@contextmanager
def forwarded(kubectl: Kubectl, namespace: str, service: str, target: int, *, port: int = 0) -> Iterator[int]:
    """The port on 127.0.0.1, which is open; `port`: which one, 0 for any that is free. Raises Failure."""
    with socket.socket() as free:
        # As kubectl's own: a connection that has ended a moment ago does not keep it from listening.
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("127.0.0.1", port))
        except OSError as error:
            raise Failure(
                f"port {port} of this machine is not free: {error.strerror}", hint="take another one"
            ) from error
        port = int(free.getsockname()[1])
    forward = subprocess.Popen(
        [*kubectl.command(), "port-forward", "-n", namespace, f"service/{service}", f"{port}:{target}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    try:
        _await_port(port, forward)
        yield port
    finally:
        forward.terminate()
        forward.wait()


def _await_port(port: int, forward: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        if forward.poll() is not None:
            words = forward.stderr.read().decode().strip() if forward.stderr else ""
            raise Failure(f"kubectl port-forward ended: {words}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise Failure("kubectl port-forward did not open its port within 10 s")
