"""The page for people: who is asking, what is shown, and the headers that keep browsers from harm.

The program answers on a socket of the pod; images/rest/proxy.py brings TLS and the network to it. It has no key of any
kind: who looks at the page gives the browser a token as password, and sees what Slurm shows to its bearer. Slurm's own
commands get it as SLURM_JWT, so that slurmctld decides. Not slurmrestd: a queue of 10,000 would be 80 MB of JSON for
each page (24.11).
"""

from __future__ import annotations

import base64
import json
import re
import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.common import http_server
from images.common.command import run
from images.common.process import program
from images.common.slurm_conf import setting
from images.common.slurm_jobs import ENVIRONMENT, RUNNING, Job, JobList
from images.common.slurm_records import NotUnderstoodError, node_records
from images.dashboard import views
from images.dashboard.views import Node

MOST_JOBS: Final = 500
"""Rows of the list of jobs."""

SOCKET: Final = Path("/run/slurmstack/dashboard.sock")
"""On an emptyDir that only the containers of the pod share."""

AT_ONCE: Final = threading.BoundedSemaphore(4)
"""Pages that are made at the same time; each asks slurmctld twice. More of them wait."""

WHO: Final = (
    "Log in with a token as password. It was missing, wrong or over: on a login node "
    "`scontrol token lifespan=28800` makes one that is good for 8 hours, where users may make some."
)

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Content-Type": "text/html; charset=utf-8",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

STYLE_HEADERS: Final = {"Content-Type": "text/css; charset=utf-8", "Cache-Control": "max-age=3600"}

CONFIG: Final = Path("/config/slurm")

TIMEOUT_SECONDS: Final = 15.0
"""More than the 10 s (MessageTimeout) after which Slurm's commands give up by themselves."""

JOB_FIELDS: Final = (
    "id", "user", "account", "partitions", "state", "reason", "submitted", "eligible", "used", "limit", "min_nodes",
    "cpus", "node_list", "name",
)  # fmt: skip

_USER: Final = re.compile(r"[A-Za-z0-9._-]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,1000}\.[A-Za-z0-9_-]{1,2000}\.[A-Za-z0-9_-]{1,1000}")
_REFUSED: Final = re.compile(r"authentication|access/permission denied|invalid.*(?:credential|token)", re.IGNORECASE)


class TokenRefusedError(Exception):
    """The token is not valid, or no longer."""


class SlurmAwayError(Exception):
    """Slurm does not answer; the message is the command's own."""


class Slurm:
    """Slurm as the bearer of a token sees it. Raises TokenRefusedError, SlurmAwayError, NotUnderstoodError."""

    def __init__(self, config: Path = CONFIG) -> None:
        self._config = config

    def jobs(self, token: str) -> list[Job]:
        """Jobs in the queue that the bearer may see; `PrivateData` is slurmctld's to enforce."""
        question = JobList(*JOB_FIELDS)
        return list(question.read(self._run(question.command, token)))

    def nodes(self, token: str) -> list[Node]:
        """All nodes."""
        output = self._run(("scontrol", "show", "nodes", "--all", "--json"), token)
        return [] if output.startswith("No nodes") else node_records(output, Node)

    def cluster(self) -> str:
        """ClusterName, as in the mounted slurm.conf."""
        files = {"slurm.conf": (self._config / "slurm.conf").read_text(encoding="utf-8", errors="replace")}
        return setting(files, "ClusterName") or "slurm"

    def _run(self, command: Sequence[str], token: str) -> str:
        environment = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "SLURM_CONF": str(self._config / "slurm.conf"),
            **ENVIRONMENT,
            "SLURM_JWT": token,
        }
        done = run(command, timeout=TIMEOUT_SECONDS, env=environment)
        if done.ok:
            return done.stdout
        if _REFUSED.search(done.stderr):
            raise TokenRefusedError
        raise SlurmAwayError(done.message)


@dataclass(frozen=True, kw_only=True)
class Response:
    """What the browser gets."""

    status: HTTPStatus = HTTPStatus.OK
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class App:
    """Asked by the server for each request, from several threads. It changes nothing in Slurm."""

    def __init__(self, slurm: Slurm, log: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        folder = Path(__file__).parent / "templates"
        # All text is cleaned and escaped, whatever a template is called.
        self._templates = Environment(
            loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=views.clean,
        )  # fmt: skip
        self._templates.filters |= {"duration": views.duration, "moment": views.moment}
        self._style = (folder / "style.css").read_text(encoding="utf-8")
        self._slurm = slurm
        self._log = log
        self._clock = clock

    def answer(self, path: str, query: Mapping[str, str], authorization: str) -> Response:
        """One answer. `authorization`: the header that a browser makes of a name and a password."""
        pages = {"/dashboard": self._overview, "/dashboard/": self._overview, "/dashboard/jobs": self._jobs}
        if path == "/dashboard/style.css":
            return Response(body=self._style, headers=STYLE_HEADERS)
        if path not in pages:
            return self._page("message", HTTPStatus.NOT_FOUND, message="There is no such page.")
        try:
            user, token = _credentials(authorization)
            return pages[path](user, token, query)
        except TokenRefusedError:
            asks = {"WWW-Authenticate": 'Basic realm="any name, and a token of Slurm as password", charset="UTF-8"'}
            return self._page("message", HTTPStatus.UNAUTHORIZED, asks, message=WHO)
        except (SlurmAwayError, NotUnderstoodError) as error:
            self._log(f"Slurm does not answer: {error}")
            return self._page("message", HTTPStatus.SERVICE_UNAVAILABLE, message=f"Slurm does not answer: {error}")

    def _overview(self, user: str, token: str, _: Mapping[str, str]) -> Response:
        jobs, nodes, now = self._slurm.jobs(token), self._slurm.nodes(token), self._clock()
        return self._page(
            "overview", me=user, pools=views.pools(nodes), nodes=nodes, queues=views.queues(jobs, nodes, now),
            running=sum(job.base_state == RUNNING for job in jobs),
            pending=sum(job.tasks for job in jobs if job.waits),
        )  # fmt: skip

    def _jobs(self, me: str, token: str, query: Mapping[str, str]) -> Response:
        user = query.get("user", me).strip()
        found = [job for job in self._slurm.jobs(token) if user in ("", job.user)]
        return self._page("jobs", me=me, user=user, count=len(found), jobs=found[:MOST_JOBS])

    def _page(
        self, template: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None, **values: Any
    ) -> Response:
        frame = {"cluster": self._slurm.cluster(), "now": self._clock()} if "me" in values else {"me": ""}
        body = self._templates.get_template(f"{template}.html.j2").render({**frame, **values})
        return Response(status=status, body=body, headers=headers or {})


def _credentials(header: str) -> tuple[str, str]:
    """Whose token it says that it is, and the token itself, of which the whole line `SLURM_JWT=...` will do.

    Nothing in it is to be believed before slurmctld has taken it; and what else was typed says nothing. Raises
    TokenRefusedError for what cannot be one.
    """
    kind, _, text = header.partition(" ")
    try:
        typed = base64.b64decode(text if kind.lower() == "basic" else "").decode().partition(":")[2]
        token = typed.strip().removeprefix("SLURM_JWT=")
        body = token.split(".")[1] if _TOKEN.fullmatch(token) else ""
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        user = str(claims.get("sun") or claims["username"])
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise TokenRefusedError from None
    if not _USER.fullmatch(user):
        raise TokenRefusedError
    return user, token


def is_foreign(headers: Message) -> bool:
    """Whether a page of another site has its reader's browser ask, which adds the token: it could do so in a loop.

    A link to the page is none: people may follow it.
    """
    return headers.get("Sec-Fetch-Site") == "cross-site" and headers.get("Sec-Fetch-Dest") != "document"


class Server(http_server.Server):
    """On a socket of the pod."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Without the name of a host, which a path has not."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_: Any) -> None:
        """Tell a fault of ours; a client that went away is no matter of the log."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


def serve(app: App, path: Path) -> Server:
    """Answer on a socket, in the background."""

    class Handler(http_server.Handler):
        timeout = 60.0  # nginx takes an answer at the client's pace

        def do_GET(self) -> None:  # noqa: N802
            path, _, text = self.path.partition("?")
            query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
            if is_foreign(self.headers):
                found = Response(status=HTTPStatus.FORBIDDEN)
            else:
                with AT_ONCE:
                    found = app.answer(path, query, self.headers.get("Authorization", ""))
            body = found.body.encode("utf-8", errors="replace")
            self.send_response(found.status)
            for name, value in {**HEADERS, **found.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = Server(str(path), Handler)  # type: ignore[arg-type]
    http_server.serve(server)
    return server


def main() -> None:
    """Entry point."""
    with program("dashboard") as log:
        SOCKET.parent.mkdir(parents=True, exist_ok=True)
        SOCKET.unlink(missing_ok=True)
        serve(App(Slurm(CONFIG), log), SOCKET)
        log(f"serving on {SOCKET}")
        signal.pause()
