"""nginx in front of slurmrestd: TLS with the certificate of a Secret, taken anew when the Secret changes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.common.files import write_atomically
from images.common.process import program
from images.common.readiness import accepts_connections
from images.common.wait import wait_for
from images.rest.slurmrestd import SOCKET

SECRET: Final = Path("/secrets/tls")

POLL_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 15.0
"""How long requests are still taken after SIGTERM: by then nodes should know that the pod leaves. It was 5 s when
clients of a busy machine were refused; that their node was late is inferred, not measured."""

RUN: Final = Path("/run/nginx")
"""For what nginx writes, in memory."""

SHUTDOWN_SECONDS: Final = 30
"""How long requests that run may go on after the end of new ones."""

PORT: Final = 6820


def render(*, ipv6: bool, dashboard: bool) -> str:
    """nginx.conf. `dashboard`: whether the pod has the page (images/dashboard/app.py)."""
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True)  # noqa: S701
    return templates.get_template("nginx.conf.j2").render(
        slurmrestd=SOCKET,
        listen=f"[::]:{PORT} ssl ipv6only=off" if ipv6 else f"{PORT} ssl",
        shutdown_seconds=SHUTDOWN_SECONDS,
        dashboard=SOCKET.with_name("dashboard.sock") if dashboard else "",
    )


def certificate() -> tuple[bytes, ...]:
    """The pair in the Secret volume; nothing before it is there."""
    try:
        return (SECRET / "tls.key").read_bytes(), (SECRET / "tls.crt").read_bytes()
    except OSError:
        return ()


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
    nginx: subprocess.Popen[str], seen: tuple[bytes, ...], leaving: threading.Event, log: Callable[[str], None]
) -> int:
    """Follow the Secret until SIGTERM comes or nginx ends; the exit status. `seen`: the pair with which it started."""
    while not leaving.wait(POLL_SECONDS):
        status = nginx.poll()
        if status is not None:
            log(f"nginx has ended with {status}")
            return status or 1
        if (pair := certificate()) not in {(), seen}:
            seen = pair
            log(f"another certificate in {SECRET}: nginx takes it, or says why not and keeps the one before")
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
        wait_for(f"a certificate in {SECRET} (tls.crt and tls.key)", lambda: all(certificate() or (b"",)), log)
        wait_for("slurmrestd (its own container of this pod)", lambda: accepts_connections(SOCKET), log)
        conf = RUN / "nginx.conf"
        ipv6, dashboard = Path("/proc/net/if_inet6").exists(), bool(os.environ.get("DASHBOARD"))
        write_atomically(conf, render(ipv6=ipv6, dashboard=dashboard))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: leaving.set())
        seen = certificate()
        return serve(start_nginx(conf, log), seen, leaving, log)
