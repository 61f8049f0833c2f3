"""The dashboard's program: the page on a socket of the pod; images/rest/proxy.py brings TLS and the network to it.

It has no key of any kind: who looks at the page brings a token, and sees what Slurm shows to its bearer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import waitress

from images.common.process import program
from images.dashboard.app import App
from images.dashboard.plots import Prometheus
from images.dashboard.slurm import CONFIG, Slurm

SOCKET: Final = Path("/run/slurmstack/dashboard.sock")
"""On an emptyDir that only the containers of the pod share."""

THREADS: Final = 4
"""Pages at the same time; each asks slurmctld twice. More of them wait."""

LARGEST_ANSWER: Final = 64 << 20
"""Bytes that are kept in memory until the client has them. What is larger waitress writes into a file, for which the
container has no place: its root is read-only. Its own bound of 1 MiB is less than 500 jobs with long names have."""


def serve(app: Callable[..., Iterable[bytes]], socket: Path) -> None:
    """Answer on a socket, for ever."""
    waitress.serve(
        app, unix_socket=str(socket), unix_socket_perms="600", threads=THREADS, ident=None, _quiet=True,
        max_request_body_size=16_384, outbuf_overflow=LARGEST_ANSWER,
    )  # fmt: skip


def main() -> None:
    """Entry point."""
    with program("dashboard") as log:
        SOCKET.parent.mkdir(parents=True, exist_ok=True)
        SOCKET.unlink(missing_ok=True)
        url = os.environ.get("PROMETHEUS", "")
        app = App(Slurm(CONFIG), Prometheus(url) if url else None, log)
        log(f"serving on {SOCKET}, with plots from {url}" if url else f"serving on {SOCKET}, without plots")
        serve(app, SOCKET)
