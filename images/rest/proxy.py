"""nginx in front of slurmrestd: TLS with the certificate of a Secret, taken anew when the Secret changes."""

from __future__ import annotations

import json
import os
import signal
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

COMMON_API: Final = "v0.0.42"
"""A version of the API that both Slurm 24.11 and 26.05 have."""

MAX_BODY: Final = "8m"
"""Twice the largest job script that Slurm takes by default (max_script_size, 4 MB): JSON needs room for escapes."""

TEMPLATE: Final = """\
# One process is enough for some thousand requests per second; slurmctld takes a few hundred.
worker_processes 1;
daemon off;
pid {run}/nginx.pid;
error_log stderr error;
worker_shutdown_timeout {shutdown_seconds}s;

events {{
    worker_connections 2048;
}}

http {{
    # Never the headers, which carry the token, nor the query.
    log_format requests '$remote_addr "$request_method $uri" $status $bytes_sent bytes in $request_time s';
    access_log /dev/stdout requests;
    server_tokens off;
    default_type application/json;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;

    client_max_body_size {max_body};
    client_header_timeout 15s;
    client_body_timeout 30s;
    send_timeout 60s;
    keepalive_timeout 60s;
    keepalive_requests 10000;

    upstream slurmrestd {{
        server unix:{slurmrestd} max_fails=0;
    }}

    server {{
        listen {listen};
        ssl_certificate {secret}/tls.crt;
        ssl_certificate_key {secret}/tls.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_prefer_server_ciphers off;
        ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
        ssl_session_cache shared:tls:2m;
        ssl_session_tickets off;

        proxy_http_version 1.1;
        # A connection to slurmrestd serves one request, so that nothing of one user can be left for another.
        proxy_set_header Connection close;
        proxy_set_header Host $host;
        proxy_connect_timeout 5s;
        proxy_send_timeout 60s;
        proxy_read_timeout 120s;
        # A list of a hundred thousand jobs goes through at the client's pace; the files would be in memory.
        proxy_max_temp_file_size 0;

        # Here it would say 502 (slurmdbd), or not ask anybody. So slurmctld is asked for something small before.
        location ~ ^/(slurmdb/|openapi(/|$)|slurm/[^/]+/ping/?$) {{
            auth_request /token;
            error_page 401 = @bad_token;
            proxy_pass http://slurmrestd;
        }}

        # slurmrestd says 401 without a token, and 511 when slurmctld did not take it.
        location ~ ^/slurm/ {{
            proxy_intercept_errors on;
            error_page 401 511 = @bad_token;
            proxy_pass http://slurmrestd;
        }}

        location = /token {{
            internal;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_set_header Connection close;
            proxy_intercept_errors on;
            error_page 511 = @bad_token;
            # slurmctld is away: what is asked for may be slurmdbd's, which checks for itself.
            error_page 500 502 503 504 = @unchecked;
            proxy_pass http://slurmrestd/slurm/{common_api}/licenses/;
        }}

        location @unchecked {{
            return 204;
        }}

        location @bad_token {{
            return 401 '{bad_token}';
        }}

        # For Kubernetes: any answer means that slurmrestd works. It wants a token even to say that there is no such
        # path.
        location = /healthz {{
            access_log off;
            proxy_set_header X-SLURM-USER-TOKEN probe;
            proxy_intercept_errors on;
            error_page 401 404 = @alive;
            proxy_pass http://slurmrestd;
        }}

        location @alive {{
            access_log off;
            return 200 '{{"status": "ok"}}';
        }}

        location / {{
            return 404 '{no_path}';
        }}
{dashboard}    }}
}}
"""

DASHBOARD: Final = """
        # The page says by itself who may see it (images/dashboard).
        location /dashboard {{
            client_max_body_size 16k;
            proxy_pass http://unix:{socket};
        }}
"""


def _error(message: str) -> str:
    """An error in the form of slurmrestd's own."""
    return json.dumps({"errors": [{"error": message}]})


def render(*, ipv6: bool, dashboard: bool) -> str:
    """The configuration. `dashboard`: whether the pod has the page (images/dashboard/app.py)."""
    return TEMPLATE.format(
        run=RUN,
        secret=SECRET,
        slurmrestd=SOCKET,
        listen=f"[::]:{PORT} ssl ipv6only=off" if ipv6 else f"{PORT} ssl",
        shutdown_seconds=SHUTDOWN_SECONDS,
        max_body=MAX_BODY,
        common_api=COMMON_API,
        bad_token=_error(
            "the token is missing, wrong or over: scontrol token makes one; send it as X-SLURM-USER-TOKEN"
        ),
        dashboard=DASHBOARD.format(socket=SOCKET.with_name("dashboard.sock")) if dashboard else "",
        no_path=_error("there is no such path: the API is at /slurm, /slurmdb and /openapi"),
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
