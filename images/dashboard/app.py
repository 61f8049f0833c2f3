"""The page for people: who is asking, what is shown, and the headers that keep browsers from harm.

The program answers on a socket of the pod; images/rest/proxy.py brings TLS and the network to it. It has no key of any
kind: who looks at the page brings a token, and sees what Slurm shows to its bearer.
"""

from __future__ import annotations

import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.common import http_server
from images.common.process import program
from images.common.slurm_jobs import RUNNING
from images.dashboard import views
from images.dashboard.slurm import CONFIG, Slurm, SlurmAwayError, Token, TokenRefusedError

HOME: Final = "/dashboard/"
COOKIE: Final = "__Secure-slurm-token"
"""With this beginning, browsers take it through TLS only."""

MOST_JOBS: Final = 500
"""Rows of the list of jobs."""

SOCKET: Final = Path("/run/slurmstack/dashboard.sock")
"""On an emptyDir that only the containers of the pod share."""

AT_ONCE: Final = threading.BoundedSemaphore(4)
"""Pages that are made at the same time; each asks slurmctld twice. More of them wait."""

LARGEST_FORM: Final = 16_384
"""Bytes, as nginx has it."""

REFUSED: Final = "The token is not valid, or no longer. scontrol token makes another."

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


@dataclass(frozen=True, kw_only=True)
class Response:
    """What the browser gets."""

    status: HTTPStatus = HTTPStatus.OK
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class App:
    """Asked by the server for each request, from several threads."""

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

    def answer(self, method: str, path: str, fields: Mapping[str, str], token: str = "") -> Response:
        """One answer. It changes nothing in Slurm. `fields`: of the form or the query; `token`: from the cookie."""
        match method, path:
            case "GET", "/dashboard/style.css":
                return Response(body=self._style, headers=STYLE_HEADERS)
            case "GET", "/dashboard/login":
                return self._page("login", message="")
            case "POST", "/dashboard/login":
                return self._login(fields.get("token", ""))
            case "POST", "/dashboard/logout":
                return _redirect(f"{HOME}login", cookie=_cookie("", 0))
            case "GET", "/dashboard" | "/dashboard/" | "/dashboard/jobs":
                return self._for_bearer(token, partial(self._jobs, fields) if path.endswith("jobs") else self._overview)
        return self._page("message", HTTPStatus.NOT_FOUND, message="There is no such page.")

    # ---------------------------------------------------------------- who asks

    def _login(self, text: str) -> Response:
        try:
            token = Token(text)
            self._slurm.nodes(token)
        except TokenRefusedError:
            self._log("a login was refused")
            return self._page("login", HTTPStatus.UNAUTHORIZED, message=REFUSED)
        except SlurmAwayError as error:
            return self._away(error)
        self._log(f"login of {token.user}")
        return _redirect(HOME, cookie=_cookie(token.text, max(0, token.ends - int(self._clock()))))

    def _for_bearer(self, text: str, page: Callable[[Token], Response]) -> Response:
        if not text:
            return _redirect(f"{HOME}login")
        try:
            return page(Token(text))
        except TokenRefusedError:
            return self._page("login", HTTPStatus.UNAUTHORIZED, {"Set-Cookie": _cookie("", 0)}, message=REFUSED)
        except SlurmAwayError as error:
            return self._away(error)

    # ---------------------------------------------------------------- pages

    def _overview(self, token: Token) -> Response:
        jobs, nodes, now = self._slurm.jobs(token), self._slurm.nodes(token), self._clock()
        return self._page(
            "overview", **self._frame(token), pools=views.pools(nodes), nodes=nodes,
            queues=views.queues(jobs, nodes, now),
            running=sum(job.base_state == RUNNING for job in jobs),
            pending=sum(job.tasks for job in jobs if job.waits),
        )  # fmt: skip

    def _jobs(self, fields: Mapping[str, str], token: Token) -> Response:
        user = fields.get("user", token.user).strip()
        found = [job for job in self._slurm.jobs(token) if user in ("", job.user)]
        return self._page("jobs", **self._frame(token), user=user, count=len(found), jobs=found[:MOST_JOBS])

    def _frame(self, token: Token) -> dict[str, Any]:
        """What every page of a bearer has."""
        return {"cluster": self._slurm.cluster(), "me": token.user, "ends": token.ends, "now": self._clock()}

    def _away(self, error: SlurmAwayError) -> Response:
        self._log(f"Slurm does not answer: {error}")
        return self._page("message", HTTPStatus.SERVICE_UNAVAILABLE, message=f"Slurm does not answer: {error}")

    def _page(
        self, template: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None, **values: Any
    ) -> Response:
        body = self._templates.get_template(f"{template}.html.j2").render({"me": "", **values})
        return Response(status=status, body=body, headers=headers or {})


def _cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/dashboard; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"


def _redirect(to: str, cookie: str = "") -> Response:
    return Response(status=HTTPStatus.SEE_OTHER, headers={"Location": to, **({"Set-Cookie": cookie} if cookie else {})})


class Server(http_server.Server):
    """On a socket of the pod."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Without the name of a host, which a path has not."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_: Any) -> None:
        """Tell a fault of ours; a client that went away is no matter of the log."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


def serve(app: App, path: Path) -> Server:
    """Answer on a socket, in the background."""

    class Handler(http_server.Handler):
        timeout = 60.0  # nginx takes an answer at the client's pace

        def do_GET(self) -> None:  # noqa: N802
            self._answer(self.path.partition("?")[2])

        def do_POST(self) -> None:  # noqa: N802
            length = self.headers.get("Content-Length", "0")
            size = min(int(length), LARGEST_FORM) if length.isdecimal() else 0
            self._answer(self.rfile.read(size).decode(errors="replace"))

        def _answer(self, text: str) -> None:
            fields = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
            cookies = (part.strip().partition("=") for part in self.headers.get("Cookie", "").split(";"))
            token = next((value for name, _, value in cookies if name == COOKIE), "")
            with AT_ONCE:
                found = app.answer(self.command, self.path.partition("?")[0], fields, token)
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
