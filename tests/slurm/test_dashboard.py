"""The dashboard: the real page behind real nginx, asked by a browser's means, and Slurm's commands behind it."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm.certificates import SEED_BYTES, server_certificate
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import wait_until

SEED = base64.b64encode(bytes(range(SEED_BYTES))).decode()
USERS = {"alice": 10001, "bob": 10002, "olga": 10003}
HOSTILE = "</td><script>alert(1)</script>\n~x~ \u202e&"
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


@dataclass
class Page:
    """A cluster with the page, and a pod to look at it from."""

    sandbox: AccountingSandbox

    def token(self, user: str) -> str:
        done = self.sandbox.run(f"scontrol token username={user} lifespan=600")
        return done.stdout.strip().removeprefix("SLURM_JWT=")

    def ask(self, path: str, *options: str, token: str = "") -> Answer:
        cookie = ("--cookie", f"{COOKIE}={token}") if token else ()
        done = self.sandbox.pods["client"].run(
            ["curl", "--silent", "--show-error", "--include", "--cacert", "/root/ca.pem", "--max-time", "60",
             *cookie, *options, f"https://rest:6820{path}"]
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + self.sandbox.logs()
        head, _, body = done.stdout.partition("\n\n")  # text mode has made one of "\r\n"
        return Answer(int(head.split()[1]), head, body)

    def login(self, text: str, *options: str) -> Answer:
        return self.ask("/dashboard/login", "--data-urlencode", f"token={text}", *options)

    def submit(self, user: str, name: str, *options: str) -> str:
        command = ["setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups", "sbatch"]
        done = self.sandbox.controller.run(
            [*command, "--parsable", "--chdir=/tmp", f"--job-name={name}", *options, "--wrap=sleep 600"]
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def page(slurm_cluster: ClusterFactory, slurm_version: str, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """One worker, accounting, users who see their own jobs only, and jobs of two of them."""
    secret: Path = tmp_path_factory.mktemp("tls")
    secret.chmod(0o755)
    made = server_certificate(SEED, "sandbox", ["rest"])
    (secret / "tls.key").write_text(made.private_key)
    (secret / "tls.crt").write_text(made.certificate)
    sandbox = slurm_cluster(
        slurm_version, workers=1, kind=AccountingSandbox, extra="PrivateData=jobs\nMessageTimeout=2\n"
    )
    found = Page(sandbox)
    rest = sandbox.add_pod(
        "rest", "rest", {sandbox.config_directory: "/config/slurm", secret: "/secrets/tls"}, munged=False
    )
    client = sandbox.add_pod("client", "jail", munged=False)
    (client.root / "root/ca.pem").write_text(made.authority)
    for pod in sandbox.pods.values():
        for file, line in (("passwd", "{0}:x:{1}:{1}::/tmp:/bin/sh\n"), ("group", "{0}:x:{1}:\n")):
            path = pod.root / "etc" / file
            path.write_text(path.read_text() + "".join(line.format(name, uid) for name, uid in USERS.items()))
    rest.start_program("dashboard")
    rest.start_program("slurmrestd", {"THREADS": "2", "MAX_CONNECTIONS": "16"})
    rest.start_program("rest-proxy", {"DASHBOARD": "yes"})
    found.submit("alice", "of-alice")
    found.submit("alice", HOSTILE, "--begin=now+1hour")
    found.submit("bob", "of-bob")
    reachable = ["curl", "--silent", "--fail", "--insecure", "https://rest:6820/dashboard/login"]
    wait_until(lambda: client.run(reachable).returncode == 0, sandbox.logs)
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


def test_the_overview_has_nodes_with_their_drain_reason_and_the_queue(page: Page) -> None:
    reason = "fan <b>2</b> & 3"
    page.sandbox.run(["scontrol", "update", "nodename=default-0", "state=drain", f"reason={reason}"])
    answer = page.ask("/dashboard/", token=page.token("olga"))
    page.sandbox.run("scontrol update nodename=default-0 state=resume")
    assert answer.status == 200
    assert re.search(r"<strong>default-0</strong> <span class=\"state\">drain(ed|ing)</span>", answer.body)
    assert "fan &lt;b&gt;2&lt;/b&gt; &amp; 3" in answer.body
    assert re.search(r'<th scope="row">main</th><td class="number">1</td>', answer.body)


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


def test_what_users_wrote_is_text_and_nothing_else(page: Page) -> None:
    answer = page.ask("/dashboard/jobs", token=page.token("alice"))
    assert "<script" not in answer.body
    assert "\u202e" not in answer.body
    shown = "&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;\ufffd~x~ \ufffd&amp;"
    assert shown in answer.body
    assert answer.body.count('<th scope="row">') == 2
    policy = answer.header("Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


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
