"""The page as a WSGI application: who is asking, what is shown, and the headers that keep browsers from harm.

The program answers on a socket of the pod; images/rest/proxy.py brings TLS and the network to it. It has no key of any
kind: who looks at the page brings a token, and sees what Slurm shows to its bearer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import waitress
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.common.process import program
from images.common.slurm_jobs import RUNNING
from images.dashboard import views
from images.dashboard.slurm import CONFIG, Slurm, SlurmAwayError, Token, TokenRefusedError
from images.dashboard.views import clean, moment

if TYPE_CHECKING:
    from wsgiref.types import StartResponse


HOME: Final = "/dashboard/"
COOKIE: Final = "__Secure-slurm-token"
"""With this beginning, browsers take it through TLS only."""

MOST_JOBS: Final = 500
"""Rows of the list of jobs."""

SOCKET: Final = Path("/run/slurmstack/dashboard.sock")
"""On an emptyDir that only the containers of the pod share."""

THREADS: Final = 4
"""Pages at the same time; each asks slurmctld twice. More of them wait."""

LARGEST_ANSWER: Final = 64 << 20
"""Bytes that are kept in memory until the client has them. What is larger waitress writes into a file, for which the
container has no place: its root is read-only. Its own bound of 1 MiB is less than 500 jobs with long names have."""

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
class Request:
    """What the browser asks for."""

    method: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    token: str
    """From the cookie; empty without one."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What it gets."""

    status: HTTPStatus = HTTPStatus.OK
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class App:
    """Called by the server for each request, from several threads."""

    def __init__(self, slurm: Slurm, log: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        folder = Path(__file__).parent / "templates"
        # All text is escaped, whatever a template is called.
        self._templates = Environment(
            loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        self._style = (folder / "style.css").read_text(encoding="utf-8")
        self._slurm = slurm
        self._log = log
        self._clock = clock
        self._routes: Mapping[tuple[str, str], Callable[[Request], Response]] = {
            ("GET", "/dashboard"): lambda _: _redirect(HOME),
            ("GET", "/dashboard/style.css"): lambda _: Response(body=self._style, headers=STYLE_HEADERS),
            ("GET", "/dashboard/login"): lambda _: self._login_page(),
            ("POST", "/dashboard/login"): self._login,
            ("POST", "/dashboard/logout"): lambda _: _redirect(f"{HOME}login", cookie=_cookie("", 0)),
            ("GET", HOME): lambda request: self._for_bearer(request, self._overview),
            ("GET", f"{HOME}jobs"): lambda request: self._for_bearer(request, self._jobs),
        }

    def __call__(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """WSGI."""
        response = self.answer(_request(environ))
        body = response.body.encode("utf-8", errors="replace")
        headers = {**HEADERS, **response.headers, "Content-Length": str(len(body))}
        start_response(f"{response.status.value} {response.status.phrase}", list(headers.items()))
        return [body]

    def answer(self, request: Request) -> Response:
        """One answer. It changes nothing in Slurm."""
        answer = self._routes.get((request.method, request.path))
        return answer(request) if answer else self._message(HTTPStatus.NOT_FOUND, "There is no such page.")

    # ---------------------------------------------------------------- who asks

    def _login(self, request: Request) -> Response:
        try:
            token = Token(request.form.get("token", ""))
            self._slurm.nodes(token)
        except TokenRefusedError:
            self._log("a login was refused")
            return self._login_page(HTTPStatus.UNAUTHORIZED, message=REFUSED)
        except SlurmAwayError as error:
            return self._away(error)
        self._log(f"login of {token.user}")
        return _redirect(HOME, cookie=_cookie(token.text, max(0, token.ends - int(self._clock()))))

    def _login_page(
        self, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None, *, message: str = ""
    ) -> Response:
        return self._page("login", status, headers, message=message)

    def _for_bearer(self, request: Request, page: Callable[[Request, Token], Response]) -> Response:
        if not request.token:
            return _redirect(f"{HOME}login")
        try:
            return page(request, Token(request.token))
        except TokenRefusedError:
            return self._login_page(HTTPStatus.UNAUTHORIZED, {"Set-Cookie": _cookie("", 0)}, message=REFUSED)
        except SlurmAwayError as error:
            return self._away(error)

    # ---------------------------------------------------------------- pages

    def _overview(self, _: Request, token: Token) -> Response:
        jobs, nodes = self._slurm.jobs(token), views.nodes(self._slurm.nodes(token))
        return self._page(
            "overview",
            **self._frame(token),
            pools=views.pools(nodes),
            nodes=nodes,
            queues=views.queues(jobs, nodes, self._clock()),
            running=sum(job.base_state == RUNNING for job in jobs),
            pending=sum(job.tasks for job in jobs if job.waits),
        )

    def _jobs(self, request: Request, token: Token) -> Response:
        user = request.query.get("user", token.user).strip()
        found = [job for job in self._slurm.jobs(token) if user in ("", job.user)]
        now = self._clock()
        return self._page(
            "jobs",
            **self._frame(token),
            user=clean(user),
            count=len(found),
            jobs=[views.row(job, now) for job in found[:MOST_JOBS]],
        )

    def _frame(self, token: Token) -> dict[str, Any]:
        """What every page of a bearer has."""
        return {
            "cluster": self._slurm.cluster(),
            "me": token.user,
            "ends": moment(token.ends),
            "now": moment(int(self._clock())),
        }

    def _away(self, error: SlurmAwayError) -> Response:
        self._log(f"Slurm does not answer: {error}")
        return self._message(HTTPStatus.SERVICE_UNAVAILABLE, f"Slurm does not answer: {clean(str(error))}")

    def _message(self, status: HTTPStatus, message: str) -> Response:
        return self._page("message", status, message=message)

    def _page(
        self, template: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None, **values: Any
    ) -> Response:
        body = self._templates.get_template(f"{template}.html.j2").render({"me": "", **values})
        return Response(status=status, body=body, headers=headers or {})


def _request(environ: Mapping[str, Any]) -> Request:
    method = str(environ["REQUEST_METHOD"])
    form: Mapping[str, str] = {}
    if method == "POST":
        stream: IO[bytes] = environ["wsgi.input"]
        form = _fields(stream.read().decode(errors="replace"))  # nginx bounds it
    cookies = (part.strip().partition("=") for part in str(environ.get("HTTP_COOKIE", "")).split(";"))
    return Request(
        method="GET" if method == "HEAD" else method,
        path=str(environ.get("PATH_INFO", "")),
        query=_fields(str(environ.get("QUERY_STRING", ""))),
        form=form,
        token=next((value for name, _, value in cookies if name == COOKIE), ""),
    )


def _fields(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}


def _cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/dashboard; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"


def _redirect(to: str, cookie: str = "") -> Response:
    return Response(status=HTTPStatus.SEE_OTHER, headers={"Location": to, **({"Set-Cookie": cookie} if cookie else {})})


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
        log(f"serving on {SOCKET}")
        serve(App(Slurm(CONFIG), log), SOCKET)
