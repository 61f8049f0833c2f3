"""nginx in front of slurmrestd: TLS with the certificate of a Secret, taken anew when the Secret changes."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Final

from images.common.files import write_atomically
from images.common.log import Log
from images.common.readiness import accepts_connections
from images.common.wait import wait_for
from images.rest.nginx_conf import render
from images.rest.slurmrestd import SOCKET

SECRET: Final = Path("/secrets/tls")
RUN: Final = Path("/run/nginx")
"""In memory: the private key is copied here."""

DASHBOARD: Final = SOCKET.with_name("dashboard.sock")
"""The page's socket (images/dashboard/app.py); it is led to where the environment has DASHBOARD."""

POLL_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 15.0
"""How long requests are still taken after SIGTERM: by then nodes should know that the pod leaves. It was 5 s when
clients of a busy machine were refused; that their node was late is inferred, not measured."""

SHUTDOWN_SECONDS: Final = 30
"""How long requests that run may go on after that."""


class Certificate:
    """The pair in the Secret volume, as one file that nginx reads: so key and certificate always belong together."""

    def __init__(self, secret: Path, target: Path, log: Callable[[str], None]) -> None:
        self._secret = secret
        self._target = target
        self._log = log
        self._seen: tuple[bytes, bytes] | None = None

    def refresh(self) -> bool:
        """Take the pair if it is new and fits together; whether it was taken. A bad one is said once, and left."""
        try:
            pair = (self._secret / "tls.key").read_bytes(), (self._secret / "tls.crt").read_bytes()
        except OSError:
            return False
        if pair == self._seen:
            return False
        self._seen = pair
        pem = pair[0].rstrip() + b"\n" + pair[1]
        candidate = self._target.with_suffix(".new")
        write_atomically(candidate, pem, mode=0o600)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(candidate, password="")
        except (ssl.SSLError, ValueError) as error:
            candidate.unlink()
            now = "the one before stays" if self._target.exists() else "there is none to start with"
            self._log(f"the certificate in {self._secret} is not taken, {now}: {error}")
            return False
        candidate.replace(self._target)
        return True


class Nginx:
    """The child process. Its output becomes lines of this program."""

    def __init__(self, conf: Path, log: Callable[[str], None]) -> None:
        # nginx opens /dev/stdout by its name, which works for a pipe of its own user only.
        argv = ["/usr/sbin/nginx", "-e", "stderr", "-c", str(conf)]
        log("starting " + " ".join(argv))
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert self._process.stdout is not None
        threading.Thread(target=_copy_lines, args=(self._process.stdout, log), daemon=True).start()

    def ended(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._process.poll()

    def reload(self) -> None:
        """Take the certificate anew. Requests that run are finished by the old worker."""
        self._process.send_signal(signal.SIGHUP)

    def finish(self) -> int:
        """Take no more requests, finish those that run, and end."""
        self._process.send_signal(signal.SIGQUIT)
        return self._process.wait()


def _copy_lines(stream: IO[str], log: Callable[[str], None]) -> None:
    for line in stream:
        log(line.rstrip("\n"))


def serve(nginx: Nginx, certificate: Certificate, leaving: threading.Event, log: Callable[[str], None]) -> int:
    """Follow the Secret until SIGTERM comes or nginx ends; the exit status."""
    while not leaving.wait(POLL_SECONDS):
        status = nginx.ended()
        if status is not None:
            log(f"nginx has ended with {status}")
            return status or 1
        if certificate.refresh():
            log(f"another certificate in {SECRET}: nginx takes it")
            nginx.reload()
    log(f"leaving: no more requests in {DRAIN_SECONDS:g} s")
    threading.Event().wait(DRAIN_SECONDS)
    return nginx.finish()


def main() -> int:
    """Entry point."""
    log = Log("rest-proxy")
    leaving = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if not started:
            sys.exit(128 + number)
        leaving.set()

    started = False
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    RUN.mkdir(parents=True, exist_ok=True)
    pem = RUN / "tls.pem"
    certificate = Certificate(SECRET, pem, log)
    wait_for(f"a certificate in {SECRET} (tls.crt and tls.key)", certificate.refresh, log, poll_seconds=0.2)
    wait_for("slurmrestd (its own container of this pod)", lambda: accepts_connections(SOCKET), log)
    (RUN / "away.sock").unlink(missing_ok=True)
    conf = render(
        run=RUN, certificate=pem, slurmrestd=SOCKET, ipv6=Path("/proc/net/if_inet6").exists(),
        shutdown_seconds=SHUTDOWN_SECONDS, dashboard=DASHBOARD if os.environ.get("DASHBOARD") else None,
    )  # fmt: skip
    write_atomically(RUN / "nginx.conf", conf)
    started = True
    return serve(Nginx(RUN / "nginx.conf", log), certificate, leaving, log)
