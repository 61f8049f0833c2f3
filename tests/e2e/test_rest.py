"""The REST API on the real local Kubernetes: asked with curl by a user on a login node, and from outside."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from slurm.dashboards.boards import BOARDS
from tests.e2e.conftest import ENGINES
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.panels import as_asked
from tests.stacks import ROOT, dev, with_change

API = "https://rest:6820/slurm/v0.0.42"


@pytest.fixture(scope="module")
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """One worker, one login node and two pods of the REST API, in a namespace of their own."""
    directory = tmp_path_factory.mktemp("rest")
    sections = with_change(with_change(dev(), "worker_nodes.default.size", 1), "login.size", 1)
    key = make_key(directory / "key")
    sections |= {
        "cluster": {"namespace": "e2e-rest"},
        "users": {"alice": {"uid": 10001, "ssh_authorized_keys": [key]}},
        "rest": {"enabled": True, "size": 2},
        "monitoring": {"install": True, "nodes": True, "kube_state": True, "dashboards": True, "storage": "1Gi"},
        "dashboard": {"enabled": True},
    }
    slurm = SlurmOnKubernetes(engine=ENGINES[0], directory=directory, sections=sections)
    try:
        slurm.up()
        slurm.await_idle("default-0")
        slurm.ssh(f"cat > rest-ca.pem <<'END'\n{authority(slurm)}\nEND")
    except BaseException:
        print(f"logs: {slurm.collect_logs('setup-rest')}")
        raise
    yield slurm
    slurmstack("destroy", "--yes", "--kill-jobs", "--engine", slurm.engine, "--config", str(slurm.file))


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


def test_the_exporter_tells_of_slurm_its_jobs_and_the_certificate(slurm: SlurmOnKubernetes) -> None:
    program = "import urllib.request as r; print(r.urlopen('http://exporter:9341/metrics', timeout=10).read().decode())"
    execute = ("exec", "-n", slurm.namespace, "deploy/exporter", "-c", "exporter", "--", "python3", "-c", program)

    def figures() -> str:
        return slurm.kubectl.run(*execute).stdout

    wanted = (
        "slurm_nodes_idle 1",
        'slurm_partition_nodes{partition="main"} 1',
        "slurmstack_slurmctld_up 1",
        "slurmstack_slurmdbd_up 1",
        "slurmstack_configuration_refused 0",
        "slurmstack_policy_failed 0",
        'slurmstack_exporter_up{source="certificates"} 1',
    )
    wait_until(lambda: set(wanted) <= set(figures().splitlines()), f"all of {wanted}", timeout=90)


def prometheus(slurm: SlurmOnKubernetes, path: str, **query: str) -> Any:
    """What Prometheus' API answers, asked in its own pod, which nobody but the dashboard reaches."""
    url = f"http://localhost:9090/api/v1/{path}?{urlencode(query)}"
    program = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=10).read().decode())"
    return json.loads(slurm.exec("prometheus-0", "python3", "-c", program, container="prometheus"))["data"]


def addresses(slurm: SlurmOnKubernetes, component: str) -> list[str]:
    """Of a component's pods."""
    pods = slurm.kubectl.items("pods", "-n", slurm.namespace, "-l", f"app.kubernetes.io/component={component}")
    return [pod["status"].get("podIP", "") for pod in pods]


def test_prometheus_reads_all_that_there_is_and_has_figures_of_slurm(slurm: SlurmOnKubernetes) -> None:
    machines = len(slurm.kubectl.items("nodes"))

    def wanted() -> set[tuple[str, str]]:
        return {
            ("prometheus", "localhost:9090"),
            ("slurmstack-exporter", "exporter:9341"),
            ("slurmstack-jobs", "default-0:9306"),
            ("slurmstack-kubernetes", "kube-state:8080"),
            *(("slurmstack-machines", f"{address}:9100") for address in addresses(slurm, "node-exporter")),
        }

    def read() -> bool:
        targets = prometheus(slurm, "targets")["activeTargets"]
        up = {(found["labels"]["job"], found["labels"]["instance"]) for found in targets if found["health"] == "up"}
        idle = prometheus(slurm, "query", query="slurm_nodes_idle")["result"]
        idle_is_known = [found["value"][1] for found in idle] == ["1"]
        return up == wanted() and len(targets) == len(up) == 4 + machines and idle_is_known

    wait_until(read, "all targets are read, one on each machine, and one node is idle", timeout=120)
    (alertmanager,) = prometheus(slurm, "alertmanagers")["activeAlertmanagers"]
    assert alertmanager["url"] == "http://localhost:9093/api/v2/alerts"


QUERIES = """
import json, sys, urllib.parse as parse, urllib.request as request
for query in json.loads(sys.argv[1]):
    url = "http://localhost:9090/api/v1/query?" + parse.urlencode({"query": query})
    if not json.load(request.urlopen(url, timeout=30))["data"]["result"]:
        print(query)
"""
"""Prints those without an answer, with Prometheus itself; fails where one is no PromQL."""


def test_with_a_node_drained_under_jobs_each_panel_has_data_and_the_alert_has_begun(slurm: SlurmOnKubernetes) -> None:
    """And it is over when that is mended. Panels of what this machine does not have, such as GPUs, are marked."""
    absent = {"gpus", "dcgm", "infiniband"}
    panels = [panel for board in BOARDS for panel in board.panels()]
    queries = [as_asked(query) for panel in panels if panel.needs not in absent for query in panel.queries]
    assert len(queries) > 40
    (files,) = slurm.kubectl.items("configmap", "grafana-dashboards", "-n", slurm.namespace)
    shown = [json.loads(text)["panels"] for text in files["data"].values()]
    expressions = {target["expr"] for page in shown for panel in page for target in panel.get("targets", ())}
    assert expressions == {query.expression for panel in panels for query in panel.queries}

    def states() -> dict[str, str]:
        return {found["labels"]["alertname"]: found["state"] for found in prometheus(slurm, "alerts")["alerts"]}

    def empty() -> list[str]:
        return slurm.exec(
            "prometheus-0", "python3", "-c", QUERIES, json.dumps(queries), container="prometheus"
        ).splitlines()

    runs, waits = (slurm.submit("sleep 600", "--exclusive") for _ in range(2))
    slurm.await_job(runs, "RUNNING")
    slurm.slurm("scontrol update nodename=default-0 state=drain reason='a fan'")
    try:
        wait_until(lambda: states().get("SlurmNodeDrained") == "pending", "the alert has begun", timeout=150)
        deadline = time.monotonic() + 150
        while (without := empty()) and time.monotonic() < deadline:
            time.sleep(5)
        assert without == []
    finally:
        slurm.slurm(f"scancel {runs} {waits}; scontrol update nodename=default-0 state=resume")
    wait_until(lambda: "SlurmNodeDrained" not in states(), "the alert is over", timeout=150)
    slurm.await_idle("default-0")


def test_a_job_that_is_submitted_runs_in_the_jail_as_the_user_of_the_token(slurm: SlurmOnKubernetes) -> None:
    status, answer = ask(slurm, token(slurm), "/job/submit", *job("id -un > who; test -e /.slurmstack/populated"))
    assert status == 200, answer
    slurm.await_job(str(answer["job_id"]))
    assert slurm.ssh("cat who") == "alice\n"


def test_a_job_is_listed_and_cancelled(slurm: SlurmOnKubernetes) -> None:
    mine = token(slurm)
    _, submitted = ask(slurm, mine, "/job/submit", *job("sleep 600"))
    number = submitted["job_id"]
    status, listed = ask(slurm, mine, "/jobs/")
    assert status == 200
    assert [(item["user_name"], item["name"]) for item in listed["jobs"] if item["job_id"] == number] == [
        ("alice", "rest")
    ]
    assert ask(slurm, mine, f"/job/{number}", "-X", "DELETE")[0] == 200
    slurm.await_job(str(number), "CANCELLED")


def test_a_job_makes_a_token_and_asks_with_it(slurm: SlurmOnKubernetes) -> None:
    header = "scontrol token | sed 's/SLURM_JWT=/X-SLURM-USER-TOKEN: /' > token"
    script = f"umask 077; {header}; curl --silent --cacert rest-ca.pem -H @token {API}/jobs/"
    number = slurm.submit(script, "--output=inner.json")
    slurm.await_job(number)
    answer = json.loads(slurm.ssh("cat inner.json"))
    assert int(number) in [item["job_id"] for item in answer["jobs"]]


def test_bad_and_expired_tokens_are_refused(slurm: SlurmOnKubernetes) -> None:
    short = token(slurm, "lifespan=1")
    head, _, signature = token(slurm).rpartition(".")
    for bad in ("", "nonsense", f"{head}.{signature[::-1]}"):
        status, answer = ask(slurm, bad, "/job/submit", *job("true"))
        assert status == 401, answer
    wait_until(lambda: ask(slurm, short, "/jobs/")[0] == 401, "the token is over")


def test_from_outside_it_is_reached_through_kubectl(slurm: SlurmOnKubernetes) -> None:
    mine = token(slurm)
    with forwarded(slurm) as port, closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as plain:
        context = ssl.create_default_context(cadata=authority(slurm))
        connection = HTTPSConnection("rest", port)
        connection.sock = context.wrap_socket(plain, server_hostname="rest")
        connection.request("GET", "/slurm/v0.0.42/nodes/", headers={"Authorization": f"Bearer {mine}"})
        answer = connection.getresponse()
        nodes = json.load(answer)["nodes"]
    assert (answer.status, [node["name"] for node in nodes]) == (200, ["default-0"])


def test_the_dashboard_shows_a_user_who_logs_in_the_nodes_and_his_jobs_as_text(slurm: SlurmOnKubernetes) -> None:
    number = slurm.submit("sleep 600", "--job-name='<b>seen</b>'")
    page = "curl --silent --show-error --cacert rest-ca.pem --cookie-jar jar --cookie jar https://rest:6820/dashboard"
    slurm.ssh(
        f"umask 077; scontrol token > token; {page}/login --location --data-urlencode token@token > overview.html"
    )
    overview, jobs = slurm.ssh("cat overview.html"), slurm.ssh(f"{page}/jobs")
    wait_until(lambda: "<figure>" in slurm.ssh(f"{page}/"), "Prometheus has figures for plots", timeout=90)
    slurm.ssh(f"scancel {number}; rm jar token")
    assert "<strong>default-0</strong>" in overview
    assert f'<th scope="row">{number}</th><td>&lt;b&gt;seen&lt;/b&gt;</td><td>alice</td>' in jobs


def test_the_dashboard_is_reached_from_outside_by_its_command_which_names_the_certificate(
    slurm: SlurmOnKubernetes,
) -> None:
    own_signals = ["env", "--default-signal=INT"]  # also where the tests run in the background of a shell
    ours = [sys.executable, "-m", "cli.entry", "dashboard", "--port", "0", "--config", str(slurm.file)]
    command = [*own_signals, *ours]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline().strip() for _ in range(4)]
            url = urlsplit(said[0])
            with closing(socket.create_connection((str(url.hostname), url.port or 0), timeout=30)) as plain:
                context = ssl.create_default_context(cadata=authority(slurm))
                connection = HTTPSConnection("rest", url.port)
                connection.sock = context.wrap_socket(plain, server_hostname="rest")
                shown = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").digest().hex(":").upper()
                connection.request("GET", url.path)
                answer = connection.getresponse()
        finally:
            process.send_signal(signal.SIGINT)
        assert (answer.status, answer.headers["Location"]) == (303, "/dashboard/login")
        assert said[3] == shown
    assert process.returncode == 0


@contextmanager
def forwarded(slurm: SlurmOnKubernetes) -> Iterator[int]:
    """A port of this machine that kubectl leads to the API."""
    command = [*slurm.kubectl.command(), "port-forward", "-n", slurm.namespace, "service/rest", ":6820"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split(" -> ")[0].rpartition(":")[2])
        finally:
            process.terminate()


def test_the_pods_are_replaced_without_a_failed_request(slurm: SlurmOnKubernetes) -> None:
    before = {name for name in slurm.pod_uids() if name.startswith("rest-")}
    quiet = f"curl --silent --output /dev/null --fail --cacert rest-ca.pem -H 'X-SLURM-USER-TOKEN: {token(slurm)}'"
    loop = f"while [ ! -e stop ]; do echo asked; {quiet} --max-time 60 {API}/nodes/ || echo failed; done > log"
    slurm.ssh(f"rm -f stop; nohup sh -c {shlex.quote(loop)} > /dev/null 2>&1 &")

    slurm.kubectl.run("rollout", "restart", "deployment/rest", "-n", slurm.namespace)
    slurm.kubectl.run("rollout", "status", "deployment/rest", "-n", slurm.namespace, "--timeout=180s")
    wait_until(lambda: not before & slurm.pod_uids().keys(), "the old pods have left", timeout=90)

    said = slurm.ssh("touch stop; cat log").split()
    assert said.count("asked") > 10
    assert "failed" not in said


def test_turned_off_it_leaves_nothing_and_the_preview_says_so(slurm: SlurmOnKubernetes) -> None:
    for section in ("rest", "dashboard"):
        slurm.sections = with_change(slurm.sections, f"{section}.enabled", value=False)
    if slurm.engine == "kubectl":
        shown = {
            (change["action"], change["kind"]) for change in slurm.preview()["changes"] if "rest" in change["name"]
        }
        kinds = ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service")
        assert shown == {("delete", kind) for kind in kinds}
    slurm.up()
    assert slurm.kubectl.items("poddisruptionbudget,deployment,service", "rest", "-n", slurm.namespace) == []
