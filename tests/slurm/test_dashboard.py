"""The dashboard: the real page behind real nginx, asked by a browser's means, and Slurm's commands behind it."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass

import pytest

from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import wait_until
from tests.slurm.web import Web

USERS = {"alice": 10001, "bob": 10002, "olga": 10003}
COOKIE = "__Secure-slurm-token"


@dataclass(frozen=True)
class Answer:
    """What curl got."""

    status: int
    headers: str
    body: str

    def header(self, name: str) -> str:
        found = re.search(rf"(?im)^{name}: (.*?)\r?$", self.headers)
        return found[1] if found else ""


class Page(Web):
    """A cluster with the page."""

    def ask(self, path: str, *options: str, token: str = "") -> Answer:
        cookie = ("--cookie", f"{COOKIE}={token}") if token else ()
        done = self.curl("--include", *cookie, *options, f"https://rest:6820{path}")
        assert done.returncode == 0, done.stderr + self.sandbox.logs()
        head, _, body = done.stdout.partition("\n\n")  # text mode has made one of "\r\n"
        return Answer(int(head.split()[1]), head, body)

    def login(self, text: str, *options: str) -> Answer:
        return self.ask("/dashboard/login", "--data-urlencode", f"token={text}", *options)

    def submit(self, user: str, name: str) -> None:
        become = ["setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"]
        job = ["sbatch", "--chdir=/tmp", f"--job-name={name}", "--wrap=sleep 600"]
        done = self.sandbox.controller.run([*become, *job])
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def page(slurm_cluster: ClusterFactory, slurm_version: str) -> Page:
    """One worker, accounting, users who see their own jobs only, and jobs of two of them."""
    private = "PrivateData=jobs\nMessageTimeout=2\n"
    sandbox = slurm_cluster(slurm_version, workers=1, kind=AccountingSandbox, extra=private)
    found = Page(sandbox, USERS, dashboard=True)
    found.submit("alice", "of-alice")
    found.submit("bob", "of-bob")
    return found


def test_a_real_token_logs_in_and_is_kept_where_no_script_and_no_other_site_gets_it(page: Page) -> None:
    token = page.token("alice")
    answer = page.login(f"SLURM_JWT={token}\n")
    assert (answer.status, answer.header("Location")) == (303, "/dashboard/")
    kept, *attributes = answer.header("Set-Cookie").split("; ")
    assert kept == f"{COOKIE}={token}"
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/dashboard"} <= set(attributes)
    (seconds,) = [int(part.removeprefix("Max-Age=")) for part in attributes if part.startswith("Max-Age=")]
    assert 500 < seconds <= 600, "no longer than the token"


def test_without_a_token_there_is_a_form_and_nothing_else(page: Page) -> None:
    for path in ("/dashboard/", "/dashboard/jobs"):
        answer = page.ask(path)
        assert (answer.status, answer.header("Location")) == (303, "/dashboard/login")
        assert "default-0" not in answer.body


def test_a_bad_token_is_refused_and_forgotten(page: Page) -> None:
    head, _, signature = page.token("alice").rpartition(".")
    forged = f"{head}.{signature[:8][::-1]}{signature[8:]}"
    other = base64.urlsafe_b64encode(json.dumps({"sun": "root", "exp": 9_999_999_999}).encode()).decode().rstrip("=")
    for bad in ("nonsense", "a.b.c", forged, f"{head.partition('.')[0]}.{other}.{signature}"):
        assert page.login(bad).status == 401
        answer = page.ask("/dashboard/", token=bad)
        assert answer.status == 401
        assert "default-0" not in answer.body
        assert answer.header("Set-Cookie").startswith(f"{COOKIE}=; ")
        assert "Max-Age=0" in answer.header("Set-Cookie")


def test_a_user_sees_only_his_own_jobs_where_slurm_says_so(page: Page) -> None:
    for user, other in (("alice", "bob"), ("bob", "alice")):
        for query in ("", "?user=", f"?user={other}"):
            body = page.ask(f"/dashboard/jobs{query}", token=page.token(user)).body
            assert (f"of-{user}" in body) == (query != f"?user={other}")
            assert f"of-{other}" not in body
    everything = page.ask("/dashboard/jobs?user=", token=page.token("root")).body
    assert "of-alice" in everything
    assert "of-bob" in everything
    counted = page.ask("/dashboard/", token=page.token("olga")).body
    assert "<dt>Jobs that run</dt><dd>0</dd>" in counted, "nor does the overview count those of others"


def test_a_logout_forgets_the_token(page: Page) -> None:
    assert "Max-Age=0" in page.ask("/dashboard/logout", "--data", "").header("Set-Cookie")


def test_no_token_is_in_a_log_or_on_a_page(page: Page) -> None:
    token = page.token("alice")
    assert page.login(token).status == 303
    bodies = [page.ask(path, token=token).body for path in ("/dashboard/", "/dashboard/jobs")]
    page.login(token + "x")
    rest = page.sandbox.pods["rest"]
    wait_until(lambda: "/dashboard/jobs" in rest.log("rest-proxy"), "the request is logged")
    logs = "".join(rest.log(program) for program in ("dashboard", "slurmrestd", "rest-proxy"))
    assert "login of alice" in logs
    for part in token.split(".")[1:]:
        assert part not in logs + "".join(bodies)


def test_slurmctld_away_is_said_and_does_not_end_the_session(page: Page) -> None:
    token = page.token("alice")
    page.sandbox.controller.run("pkill -KILL -x slurmctld")
    answer = page.ask("/dashboard/", token=token)
    page.sandbox.controller.start_program("slurmctld")
    assert (answer.status, answer.header("Set-Cookie")) == (503, "")
    assert "Slurm does not answer" in answer.body
    wait_until(lambda: page.ask("/dashboard/", token=token).status == 200, page.sandbox.logs)
