"""nginx in front of slurmrestd: TLS with the certificate of a Secret, taken anew when the Secret changes."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.process import program
from images.common.readiness import accepts_connections
from images.common.wait import wait_for
from images.rest.nginx_conf import CERTIFICATE, RUN, render
from images.rest.slurmrestd import SOCKET

SECRET: Final = Path("/secrets/tls")

POLL_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 15.0
"""How long requests are still taken after SIGTERM: by then nodes should know that the pod leaves. It was 5 s when
clients of a busy machine were refused; that their node was late is inferred, not measured."""


class Certificate:
    """The pair in the Secret volume, as one file that nginx reads: so key and certificate always belong together."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._seen: tuple[bytes, bytes] | None = None

    def refresh(self) -> bool:
        """Take the pair if it is new and fits together; whether it was taken. A bad one is said once, and left."""
        try:
            pair = (SECRET / "tls.key").read_bytes(), (SECRET / "tls.crt").read_bytes()
        except OSError:
            return False
        if pair == self._seen:
            return False
        self._seen = pair
        pem = pair[0].rstrip() + b"\n" + pair[1]
        candidate = CERTIFICATE.with_suffix(".new")
        write_atomically(candidate, pem, mode=0o600)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(candidate, password="")
        except (ssl.SSLError, ValueError) as error:
            candidate.unlink()
            now = "the one before stays" if CERTIFICATE.exists() else "there is none to start with"
            self._log(f"the certificate in {SECRET} is not taken, {now}: {error}")
            return False
        candidate.replace(CERTIFICATE)
        return True


def start_nginx(conf: Path, log: Callable[[str], None]) -> subprocess.Popen[str]:
    """The child process, whose output becomes lines of this program."""
    # nginx opens /dev/stdout by its name, which works for a pipe of its own user only.
    argv = ["/usr/sbin/nginx", "-e", "stderr", "-c", str(conf)]
    log("starting " + " ".join(argv))
    nginx = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )

    def copy_lines() -> None:
        for line in nginx.stdout or ():
            log(line.rstrip("\n"))

    threading.Thread(target=copy_lines, daemon=True).start()
    return nginx


def serve(
    nginx: subprocess.Popen[str], certificate: Certificate, leaving: threading.Event, log: Callable[[str], None]
) -> int:
    """Follow the Secret until SIGTERM comes or nginx ends; the exit status."""
    while not leaving.wait(POLL_SECONDS):
        status = nginx.poll()
        if status is not None:
            log(f"nginx has ended with {status}")
            return status or 1
        if certificate.refresh():
            log(f"another certificate in {SECRET}: nginx takes it")
            nginx.send_signal(signal.SIGHUP)  # requests that run are finished by the old worker
    log(f"leaving: no more requests in {DRAIN_SECONDS:g} s")
    time.sleep(DRAIN_SECONDS)
    nginx.send_signal(signal.SIGQUIT)  # it finishes requests that run
    return nginx.wait()


def main() -> int:
    """Entry point."""
    leaving = threading.Event()
    with program("rest-proxy") as log:
        RUN.mkdir(parents=True, exist_ok=True)
        certificate = Certificate(log)
        wait_for(f"a certificate in {SECRET} (tls.crt and tls.key)", certificate.refresh, log, poll_seconds=0.2)
        wait_for("slurmrestd (its own container of this pod)", lambda: accepts_connections(SOCKET), log)
        (RUN / "away.sock").unlink(missing_ok=True)
        conf = RUN / "nginx.conf"
        ipv6, dashboard = Path("/proc/net/if_inet6").exists(), bool(os.environ.get("DASHBOARD"))
        write_atomically(conf, render(ipv6=ipv6, dashboard=dashboard))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: leaving.set())
        return serve(start_nginx(conf, log), certificate, leaving, log)
