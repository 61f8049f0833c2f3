"""The REST API and the page: slurmrestd and our own program behind real nginx, asked with curl from another pod."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import time
from typing import Any

import pytest

from slurm.certificates import server_certificate
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import IMPATIENT, SEED, add_accounts, identity
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

API = {"24.11": "v0.0.42", "26.05": "v0.0.45"}
"""The newest version of the API that each Slurm has."""
USERS = {"alice": 10001, "bob": 10002}
CURL = ("curl", "--silent", "--show-error", "--cacert", "/root/ca.pem", "--max-time", "60")
SLURMRESTD = {"THREADS": "4", "MAX_CONNECTIONS": "64"}


class Rest:
    """A cluster with a REST API and the page, and a pod to ask from."""

    def __init__(self, sandbox: SlurmSandbox) -> None:
        self.sandbox = sandbox
        self.secret = sandbox.work / "tls"
        self.secret.mkdir()
        self.renew("rest")
        binds = {sandbox.config_directory: "/config/slurm", self.secret: "/secrets/tls"}
        self.pod: Pod = sandbox.add_pod("rest", "rest", binds, munged=False)
        client = sandbox.add_pod("client", "jail", munged=False)
        (client.root / "root/ca.pem").write_text(server_certificate(SEED, "sandbox", ["rest"]).authority)
        add_accounts(identity(USERS, "/tmp"), *(pod.root for pod in sandbox.pods.values()))
        self.pod.start_program("dashboard")
        self.pod.start_program("slurmrestd", SLURMRESTD)
        self.pod.start_program("rest-proxy", {"DASHBOARD": "yes"})
        for path in ("healthz", "dashboard/style.css"):
            url = f"https://rest:6820/{path}"
            wait_until(lambda url=url: self.curl("--fail", url).returncode == 0, sandbox.logs)  # type: ignore[misc]

    def renew(self, *names: str) -> None:
        """Put another certificate into the Secret's volume."""
        made = server_certificate(SEED, "sandbox", names)
        (self.secret / "tls.key").write_text(made.private_key)
        (self.secret / "tls.crt").write_text(made.certificate)

    def token(self, user: str = "alice") -> str:
        """Of ten minutes."""
        done = self.sandbox.run(f"scontrol token username={user} lifespan=600")
        return done.stdout.strip().removeprefix("SLURM_JWT=")

    def curl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """curl in the pod `client`."""
        return self.sandbox.pods["client"].run([*CURL, *arguments], stdin=stdin)

    @property
    def api(self) -> str:
        return API[self.sandbox.version]

    def ask(
        self, method: str, path: str, *headers: str, token: str = "", body: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """(status, JSON of the answer) of one request."""
        path = path.replace("API", self.api)
        sent = [*([f"X-SLURM-USER-TOKEN: {token}"] if token else []), *headers]
        data = ("--json", "@-") if body is not None else ()
        done = self.curl(
            "--request", method, "--write-out", "\n%{http_code}", *(part for line in sent for part in ("-H", line)),
            *data, f"https://rest:6820{path}", stdin=None if body is None else json.dumps(body),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + self.sandbox.logs()
        text, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(text)

    def submit(self, script: str, token: str) -> tuple[int, Any]:
        job = {"name": "rest", "current_working_directory": "/tmp", "environment": ["PATH=/usr/bin:/bin"]}
        return self.ask(
            "POST", "/slurm/API/job/submit", token=token, body={"script": f"#!/bin/sh\n{script}\n", "job": job}
        )

    def page(self, path: str, token: str) -> tuple[int, str]:
        """What a browser gets: status and text."""
        url = f"https://rest:6820/dashboard/{path}"
        done = self.curl("--user", f"alice:{token}", "--write-out", "\n%{http_code}", url)
        assert done.returncode == 0, done.stderr + self.sandbox.logs()
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def state(self, job: int, token: str) -> str:
        status, answer = self.ask("GET", f"/slurm/API/job/{job}", token=token)
        assert status == 200, answer
        return str(answer["jobs"][0]["job_state"][0])


@pytest.fixture(scope="module")
def rest(slurm_cluster: ClusterFactory, slurm_version: str) -> Rest:
    """One worker, accounting, users who see their own jobs only, the REST API, the page and a client."""
    private = f"{IMPATIENT}PrivateData=jobs\n"
    return Rest(slurm_cluster(slurm_version, workers=1, kind=AccountingSandbox, extra=private))


def is_healthy(rest: Rest) -> bool:
    return rest.curl("--fail", "https://rest:6820/healthz").returncode == 0


def signed(key: bytes, **claims: Any) -> str:
    """A token as slurmctld makes them, with claims and a key of our own choice."""
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    head = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    signature = hmac.new(key, head, hashlib.sha256).digest()
    return (head + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def own_token(rest: Rest, *, age: int = 0, key: bytes = b"") -> str:
    """A token of alice that was made `age` seconds ago for a minute."""
    made = int(time.time()) - age
    kept = (rest.sandbox.jwt_secret / "jwt_hs256.key").read_bytes()
    return signed(key or kept, iat=made, exp=made + 60, sun="alice")


@pytest.mark.in_gate
def test_a_job_runs_as_the_user_of_the_token(rest: Rest) -> None:
    for user in USERS:
        token = rest.token(user)
        status, answer = rest.submit(f"id -un > /tmp/{user}.out", token)
        assert status == 200, answer
        job = answer["job_id"]
        wait_until(lambda: rest.state(job, token) == "COMPLETED", rest.sandbox.logs)  # noqa: B023  used at once
        assert (rest.sandbox.pods["default-0"].root / f"tmp/{user}.out").read_text() == f"{user}\n"


@pytest.mark.parametrize("what", ["no token", "an expired one", "one of another key", "somebody else's"])
def test_without_a_good_token_nothing_is_answered_and_nothing_done(rest: Rest, what: str) -> None:
    token = {
        "no token": "",
        "an expired one": own_token(rest, age=120),
        "one of another key": own_token(rest, key=b"x" * 32),
        "somebody else's": rest.token("bob"),
    }[what]
    headers = ("X-SLURM-USER-NAME: alice",) if what == "somebody else's" else ()
    before = rest.sandbox.run("squeue --noheader --states=all --format=%i").stdout.split()

    body = {"script": "#!/bin/sh\ntrue\n", "job": {"current_working_directory": "/tmp", "environment": ["A=b"]}}
    reads = ["/slurm/API/jobs/", "/slurmdb/API/jobs/", "/slurm/API/ping/", "/openapi/v3"]
    for method, path, sent in (*(("GET", path, None) for path in reads), ("POST", "/slurm/API/job/submit", body)):
        status, answer = rest.ask(method, path, *headers, token=token, body=sent)
        assert status == 401, answer
        assert "is missing, wrong or over" in answer["errors"][0]["error"]
        assert sent or rest.ask(method, path, token=own_token(rest))[0] == 200, "it is the token"

    assert rest.sandbox.run("squeue --noheader --states=all --format=%i").stdout.split() == before


def test_a_token_that_a_user_makes_is_good_for_a_day_at_most(rest: Rest) -> None:
    def asked(options: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
        return rest.sandbox.run(f"setpriv --reuid={user} --clear-groups scontrol token {options}")

    for options in ("lifespan=999999", "lifespan=86401", "lifespan=infinite"):
        assert "Requested time limit is invalid" in asked(options).stderr
    for options in ("", "lifespan=86400"):
        assert asked(options).stdout.startswith("SLURM_JWT=")
    assert asked("username=alice lifespan=999999", user="root").stdout.startswith("SLURM_JWT=")


@pytest.mark.in_gate
def test_no_token_is_in_a_log(rest: Rest) -> None:
    token = rest.token()
    assert rest.ask("GET", f"/slurm/API/jobs/?secret={token}", f"Authorization: Bearer {token}")[0] == 200
    assert rest.page("", token)[0] == 200
    assert rest.page("", f"{token}x")[0] == 401

    wait_until(lambda: "/jobs/" in rest.pod.log("rest-proxy"), "the request is logged")
    logs = "".join(rest.pod.log(program) for program in ("rest-proxy", "slurmrestd", "dashboard"))
    assert token.split(".")[2] not in logs


def test_a_renewed_certificate_is_taken_without_a_failed_request(rest: Rest) -> None:
    def answers_to(name: str) -> bool:
        return rest.curl("--connect-to", f"{name}:6820:rest:6820", f"https://{name}:6820/healthz").returncode == 0

    url = f"https://rest:6820/slurm/{rest.api}/nodes/"
    # Twice the same address: the second request goes over the connection of the first.
    once = f"{' '.join(CURL)} --fail -H 'X-SLURM-USER-TOKEN: {rest.token()}' {url} {url}"
    loop = f"for i in $(seq 60); do {once} || echo cut; done"
    requests = subprocess.Popen(
        rest.sandbox.pods["client"].command(["bash", "-c", f"{loop} | grep -c cut; true"]),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert not answers_to("renewed")

    rest.renew("rest", "renewed")

    wait_until(lambda: answers_to("renewed"), rest.sandbox.logs)
    assert requests.communicate()[0].strip() == "0"


@pytest.mark.in_gate
def test_slurmctld_away_is_said_clearly_and_then_all_works_again(rest: Rest) -> None:
    token, controller = rest.token(), rest.sandbox.controller
    controller.run("pkill -KILL -x slurmctld")

    def is_away() -> bool:
        """While slurmctld ends slurmrestd says 500, as for what Slurm refuses."""
        status, answer = rest.ask("GET", "/slurm/API/jobs/", token=token)
        return status == 502 and "Unable to contact slurm controller" in answer["errors"][0]["error"]

    wait_until(is_away, rest.sandbox.logs)
    assert is_healthy(rest), "a pod that was taken out could not even say why"
    assert rest.page("", token)[0] == 503
    assert rest.ask("GET", "/slurmdb/API/jobs/", token=token)[0] == 200, "slurmdbd is there, and checks for itself"
    assert rest.ask("GET", "/slurmdb/API/jobs/", token="nonsense")[0] >= 400

    controller.start_program("slurmctld")
    wait_until(lambda: rest.ask("GET", "/slurm/API/jobs/", token=token)[0] == 200, rest.sandbox.logs)


def test_a_bad_token_sees_nothing(rest: Rest) -> None:
    assert "default-0" in rest.page("", rest.token("alice"))[1]
    head, _, signature = rest.token("alice").rpartition(".")
    forged = f"{head}.{signature[:8][::-1]}{signature[8:]}"
    other = base64.urlsafe_b64encode(json.dumps({"sun": "root", "exp": 9_999_999_999}).encode()).decode().rstrip("=")
    for bad in ("", "nonsense", "a.b.c", forged, f"{head.partition('.')[0]}.{other}.{signature}"):
        for path in ("", "jobs?user="):
            status, text = rest.page(path, bad)
            assert (status, "default-0" in text) == (401, False)


def test_a_user_sees_only_his_own_jobs_where_slurm_says_so(rest: Rest) -> None:
    for user, uid in USERS.items():
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        job = ["sbatch", "--hold", "--chdir=/tmp", f"--job-name=of-{user}", "--wrap=true"]
        done = rest.sandbox.controller.run([*become, *job])
        assert done.returncode == 0, done.stderr
    for user, other in (("alice", "bob"), ("bob", "alice")):
        for query in (f"?user={user}", "?user=", f"?user={other}"):
            body = rest.page(f"jobs{query}", rest.token(user))[1]
            assert (f"of-{user}" in body) == (query != f"?user={other}")
            assert f"of-{other}" not in body
    everything = rest.page("jobs?user=", rest.token("root"))[1]
    assert "of-alice" in everything
    assert "of-bob" in everything
