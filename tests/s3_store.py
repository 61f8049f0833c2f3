"""A real S3 store for tests: moto's server, over HTTP."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "backups"
KEYS = {"access-key-id": "AKIDEXAMPLE", "secret-access-key": "a-secret+access/key", "password": "correct-horse"}
"""What the Secret of a stack with backups has."""

_CLONE_NEWNET = 0x40000000


class Store:
    """One that runs in this process, and keeps in memory what it keeps."""

    def __init__(self) -> None:
        # They take long to load.
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._application = DomainDispatcherApplication(create_backend_app)
        self._servers: list[tuple[Any, threading.Thread]] = []
        self.before: Callable[[dict[str, Any]], None] = lambda _: None
        """Called with each request's environment (WSGI): a test has it wait, or looks."""
        self.port = self.listen("127.0.0.1")
        self.client.create_bucket(Bucket=BUCKET)

    def listen(self, address: str, *, beside: int | None = None) -> int:
        """Take connections at an address, on a port that is free. `beside`: in the network of this process."""
        from werkzeug.serving import make_server  # noqa: PLC0415

        listening = socket.create_server((address, 0)) if beside is None else _listening(address, beside)
        server = make_server(address, 0, self._answer, threaded=True, fd=listening.detach())
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._servers.append((server, thread))
        return int(server.socket.getsockname()[1])

    def _answer(self, environment: dict[str, Any], start_response: Any) -> Any:
        self.before(environment)
        return self._application(environment, start_response)

    def stop(self) -> None:
        """No connection is taken any more."""
        for server, thread in self._servers:
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def client(self) -> Any:
        """boto3's client, as who owns the bucket."""
        import boto3  # type: ignore[import-untyped]  # noqa: PLC0415

        keys = {"aws_access_key_id": "owner", "aws_secret_access_key": "owner", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", **keys)

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """All objects, with their content."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        names = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {name: self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names}

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def know_keys(self, known: bool) -> None:
        """Whether any access key is taken, as at the beginning, or none."""
        import requests  # noqa: PLC0415

        count = "inf" if known else "0"
        requests.post(f"http://127.0.0.1:{self.port}/moto-api/reset-auth", data=count, timeout=10).raise_for_status()


def _listening(address: str, beside: int) -> socket.socket:
    """A socket in the network of another process; only the thread that makes it goes there."""
    found: list[socket.socket] = []

    def make() -> None:
        network = os.open(f"/proc/{beside}/ns/net", os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(network, _CLONE_NEWNET) == 0
        os.close(network)
        found.append(socket.create_server((address, 0)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return found[0]


@contextmanager
def s3_store() -> Iterator[Store]:
    """A store with a bucket."""
    store = Store()
    try:
        yield store
    finally:
        store.stop()
