"""The REST API on the real local Kubernetes: asked with curl by a user on a login node, and from outside."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.stacks import dev, with_change

API = "https://rest:6820/slurm/v0.0.42"


@pytest.fixture(scope="module")
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """One worker, one login node and two pods of the REST API, in a namespace of their own."""
    sections = with_change(with_change(dev(), "worker_nodes.default.size", 1), "login.size", 1) | {
        "cluster": {"namespace": "e2e-rest"},
        "rest": {"enabled": True, "size": 2},
        "monitoring": {"install": True, "storage": "1Gi"},
        "dashboard": {"enabled": True},
    }
    with own_cluster(ENGINES[0], tmp_path_factory.mktemp("rest"), sections, "default-0") as slurm:
        slurm.ssh(f"cat > rest-ca.pem <<'END'\n{authority(slurm)}\nEND")
        yield slurm


def authority(slurm: SlurmOnKubernetes) -> str:
    """The certificate that docs/rest.md tells users to fetch."""
    (secret,) = slurm.kubectl.items("secret", "rest-tls", "-n", slurm.namespace)
    return base64.b64decode(secret["data"]["ca.crt"]).decode().strip()


def token(slurm: SlurmOnKubernetes, *options: str) -> str:
    """A token that alice makes for herself on a login node, in the jail."""
    printed = slurm.ssh(f"scontrol token {' '.join(options)}").strip()
    assert printed.startswith("SLURM_JWT="), printed
    return printed.removeprefix("SLURM_JWT=")


def ask(slurm: SlurmOnKubernetes, token: str, path: str, *options: str) -> tuple[int, Any]:
    """(status, answer) of a request with curl on a login node."""
    command = [
        "curl", "--silent", "--show-error", "--cacert", "rest-ca.pem", "--max-time", "60",
        "--write-out", r"\n%{http_code}", "-H", f"X-SLURM-USER-TOKEN: {token}", *options, f"{API}{path}",
    ]  # fmt: skip
    text, _, status = slurm.ssh(shlex.join(command)).strip().rpartition("\n")
    return int(status), json.loads(text)


def job(script: str) -> tuple[str, str]:
    """A job as options of curl."""
    work = {"name": "rest", "current_working_directory": "/home/alice", "environment": ["PATH=/usr/bin:/bin"]}
    return "--json", json.dumps({"script": f"#!/bin/sh\n{script}\n", "job": work})


def test_a_job_that_is_submitted_runs_in_the_jail_as_the_user_of_the_token(slurm: SlurmOnKubernetes) -> None:
    status, answer = ask(slurm, token(slurm), "/job/submit", *job("id -un > who; test -e /.slurmstack/populated"))
    assert status == 200, answer
    slurm.await_job(str(answer["job_id"]))
    assert slurm.ssh("cat who") == "alice\n"


def test_the_dashboard_shows_a_user_who_logs_in_the_nodes_and_his_jobs_as_text(slurm: SlurmOnKubernetes) -> None:
    number = slurm.submit("sleep 600", "--job-name='<b>seen</b>'")
    slurm.ssh("umask 077; scontrol token | sed 's/SLURM_JWT=\\(.*\\)/user = \"alice:\\1\"/' > login")
    page = "curl --silent --show-error --cacert rest-ca.pem --config login https://rest:6820/dashboard"
    overview, jobs = slurm.ssh(f"{page}/"), slurm.ssh(f"{page}/jobs")
    slurm.ssh(f"scancel {number}; rm login")
    assert "<strong>default-0</strong>" in overview
    assert f'<th scope="row">{number}</th><td>&lt;b&gt;seen&lt;/b&gt;</td><td>alice</td>' in jobs


def test_the_pods_are_replaced_without_a_failed_request(slurm: SlurmOnKubernetes) -> None:
    before = {name for name in slurm.pod_uids() if name.startswith("rest-")}
    quiet = f"curl --silent --output /dev/null --fail --cacert rest-ca.pem -H 'X-SLURM-USER-TOKEN: {token(slurm)}'"
    loop = f"while [ ! -e stop ]; do echo asked; {quiet} --max-time 60 {API}/nodes/ || echo failed; done > log"
    slurm.ssh(f"rm -f stop; nohup sh -c {shlex.quote(loop)} > /dev/null 2>&1 &")

    slurm.kubectl.run("rollout", "restart", "deployment/rest", "-n", slurm.namespace)
    slurm.kubectl.run("rollout", "status", "deployment/rest", "-n", slurm.namespace, "--timeout=180s")
    wait_until(lambda: not before & slurm.pod_uids().keys(), "the old pods have left")

    said = slurm.ssh("touch stop; cat log").split()
    assert said.count("asked") > 10
    assert "failed" not in said
