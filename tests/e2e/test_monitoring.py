"""Monitoring on the real local Kubernetes: what is read, what the dashboards show, and each alert for real."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from slurm.alerts import ALERTS
from slurm.dashboards.boards import BOARDS
from tests.e2e import going_wrong
from tests.e2e.asking_doctor import doctor
from tests.e2e.conftest import ENGINES
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.e2e.played_dcgm import SCRAPE_JOB, Dcgm, dcgm
from tests.e2e.prometheus import Prometheus, hurried, told
from tests.e2e.small_volumes import Disk, small_volumes
from tests.panels import as_asked
from tests.stacks import dev, with_change

pytestmark = pytest.mark.watch

NAMESPACE = "e2e-monitoring"


@dataclass(frozen=True, kw_only=True)
class Monitored:
    """A cluster of two workers with all of monitoring, whose volumes can be filled, and played GPUs."""

    slurm: SlurmOnKubernetes
    disks: dict[str, Disk]
    gpus: Dcgm


@pytest.fixture(scope="module")
def monitored(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    directory = tmp_path_factory.mktemp("monitoring")
    sections = with_change(dev(), "login.size", 1)
    # Strictly by priority, so that a job that cannot start keeps those behind it from starting: a queue that is stuck.
    sections = with_change(sections, "slurm.settings.SchedulerType", "sched/builtin")
    sections |= {
        "cluster": {"namespace": NAMESPACE},
        "users": {"alice": {"uid": 10001, "ssh_authorized_keys": [make_key(directory / "key")]}},
        "rest": {"enabled": True},
        # None is made here.
        "backup": {
            "endpoint": "http://192.0.2.1",
            "bucket": "none",
            "credentials_secret": "backup",
            "schedule": "0 0 29 2 *",
        },
        "monitoring": {"install": True, "nodes": True, "kube_state": True, "dashboards": True, "storage": "1Gi"},
        "health": {"interval": 10, "report_only": ["disks", "filesystem"]},
    }
    slurm = SlurmOnKubernetes(engine=ENGINES[0], directory=directory, sections=sections)
    with small_volumes(NAMESPACE, {"jail": "2G", "controller-state": "64M"}, directory) as disks:
        try:
            slurm.up()
            slurm.await_idle("default-0", "default-1")
        except BaseException:
            print(f"logs: {slurm.collect_logs('setup-monitoring')}")
            raise
        with dcgm(slurm) as gpus:
            yield Monitored(slurm=slurm, disks=disks, gpus=gpus)
        slurmstack(
            "destroy", "--yes", "--kill-jobs", "--delete-data", "--engine", slurm.engine, "--config", str(slurm.file)
        )


@pytest.fixture(scope="module")
def slurm(monitored: Monitored) -> SlurmOnKubernetes:
    return monitored.slurm


def test_the_exporter_tells_of_slurm_its_jobs_and_the_certificate(slurm: SlurmOnKubernetes) -> None:
    program = "import urllib.request as r; print(r.urlopen('http://exporter:9341/metrics', timeout=10).read().decode())"
    execute = ("exec", "-n", slurm.namespace, "deploy/exporter", "-c", "exporter", "--", "python3", "-c", program)

    def figures() -> str:
        return slurm.kubectl.run(*execute).stdout

    wanted = (
        "slurm_nodes_idle 2",
        'slurm_partition_nodes{partition="main"} 2',
        "slurmstack_slurmctld_up 1",
        "slurmstack_slurmdbd_up 1",
        "slurmstack_configuration_refused 0",
        "slurmstack_policy_failed 0",
        'slurmstack_exporter_up{source="certificates"} 1',
    )
    wait_until(lambda: set(wanted) <= set(figures().splitlines()), f"all of {wanted}")


def addresses(slurm: SlurmOnKubernetes, component: str) -> list[str]:
    """Of a component's pods."""
    pods = slurm.kubectl.items("pods", "-n", slurm.namespace, "-l", f"app.kubernetes.io/component={component}")
    return [pod["status"].get("podIP", "") for pod in pods]


def test_prometheus_reads_all_that_there_is_and_has_figures_of_slurm(slurm: SlurmOnKubernetes) -> None:
    prometheus = Prometheus(slurm=slurm)
    machines = len(slurm.kubectl.items("nodes"))

    def wanted() -> set[tuple[str, str]]:
        return {
            ("prometheus", "localhost:9090"),
            ("slurmstack-exporter", "exporter:9341"),
            ("slurmstack-jobs", "default-0:9306"),
            ("slurmstack-jobs", "default-1:9306"),
            ("slurmstack-kubernetes", "kube-state:8080"),
            *(("slurmstack-machines", f"{address}:9100") for address in addresses(slurm, "node-exporter")),
        }

    def read() -> bool:
        targets = prometheus.ask("targets")["activeTargets"]
        up = {(found["labels"]["job"], found["labels"]["instance"]) for found in targets if found["health"] == "up"}
        idle = prometheus.ask("query", query="slurm_nodes_idle")["result"]
        idle_is_known = [found["value"][1] for found in idle] == ["2"]
        return up == wanted() and len(targets) == len(up) == 5 + machines and idle_is_known

    wait_until(read, "all targets are read, one on each machine, and two nodes are idle")
    (alertmanager,) = prometheus.ask("alertmanagers")["activeAlertmanagers"]
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
    prometheus = Prometheus(slurm=slurm)
    absent = {"gpus", "dcgm", "infiniband"}
    panels = [panel for board in BOARDS for panel in board.panels()]
    queries = [as_asked(query) for panel in panels if panel.needs not in absent for query in panel.queries]
    assert len(queries) > 40
    (files,) = slurm.kubectl.items("configmap", "grafana-dashboards", "-n", slurm.namespace)
    shown = [json.loads(text)["panels"] for text in files["data"].values()]
    expressions = {target["expr"] for page in shown for panel in page for target in panel.get("targets", ())}
    assert expressions == {query.expression for panel in panels for query in panel.queries}

    def empty() -> list[str]:
        return slurm.exec(
            "prometheus-0", "python3", "-c", QUERIES, json.dumps(queries), container="prometheus"
        ).splitlines()

    runs, waits = (slurm.submit("sleep 600", "--exclusive", "--nodes=2") for _ in range(2))
    slurm.await_job(runs, "RUNNING")
    slurm.slurm("scontrol update nodename=default-0 state=drain reason='a fan'")
    try:
        wait_until(lambda: prometheus.states().get("SlurmNodeDrained") == "pending", "the alert has begun")
        deadline = time.monotonic() + 150
        while (without := empty()) and time.monotonic() < deadline:
            time.sleep(5)
        assert without == []
    finally:
        slurm.slurm(f"scancel {runs} {waits}; scontrol update nodename=default-0 state=resume")
    wait_until(lambda: "SlurmNodeDrained" not in prometheus.states(), "the alert is over")
    slurm.await_idle("default-0", "default-1")


def nodes_and_queue(at: Monitored) -> Iterator[AbstractContextManager[None]]:
    yield going_wrong.requeued_often(at.slurm)
    yield going_wrong.stuck_queue(at.slurm)  # for a minute
    yield going_wrong.refused_configuration(at.slurm)
    yield going_wrong.nodes_drained_and_down(at.slurm)
    yield going_wrong.claim_without_a_class(at.slurm)
    yield going_wrong.suspended_backups(at.slurm)
    yield going_wrong.unrehearsed_backups(at.slurm)
    yield going_wrong.certificate_near_its_end(at.slurm)  # after it: an apply puts it right
    yield at.gpus.with_errors()


def volumes_prolog_and_policy(at: Monitored) -> Iterator[AbstractContextManager[None]]:
    yield going_wrong.refused_policy(at.slurm)
    yield going_wrong.failed_prolog(at.slurm)
    yield going_wrong.full(at.disks["controller-state"], 0.94)
    yield going_wrong.full(at.disks["jail"], 0.99)


def slurm_and_rights_gone(at: Monitored) -> Iterator[AbstractContextManager[None]]:
    yield going_wrong.without(at.slurm, "statefulset/controller", "statefulset/slurmdbd")
    yield going_wrong.without_rights(at.slurm, "kube-state")


def figures_gone_and_a_container_restarting(at: Monitored) -> Iterator[AbstractContextManager[None]]:
    yield going_wrong.without(at.slurm, "deployment/exporter")
    # In the end: the cluster's own Prometheus tells of it, too, five minutes later and for an hour.
    yield going_wrong.restarting_container(at.slurm)


TOLD: Final[dict[Callable[[Monitored], Iterator[AbstractContextManager[None]]], set[str]]] = {
    nodes_and_queue: {
        "BackupFailed",
        "BackupUnrehearsed",
        "CertificateNearItsEnd",
        "ClaimNotBound",
        "ElasticPoolSetAside",
        "GpuErrors 0",
        "GpuErrors 1",
        "SlurmConfigurationRefused",
        "SlurmJobRequeueLoop",
        "SlurmManyNodesDrained",
        "SlurmNodeDrained",
        "SlurmNodesDown",
        "SlurmQueueStuck",
    },
    volumes_prolog_and_policy: {
        "JailNearlyFull",
        "SlurmPolicyFailed",
        "SlurmPrologFailed",
        "StateVolumeNearlyFull",
    },
    slurm_and_rights_gone: {"SlurmctldDown", "SlurmdbdDown", "SlurmTargetDown kube-state:8080"},
    figures_gone_and_a_container_restarting: {
        "ContainerRestartLoop",
        "SlurmFiguresMissing",
        "SlurmTargetDown exporter:9341",
    },
}
"""What happens, and what is told, as `told` names it."""

FOUND: Final = {
    volumes_prolog_and_policy: {
        "the jail is full: jobs cannot write, and its nodes are drained",
    }
}
"""What `slurmstack doctor` finds beside what other tests make alone (test_doctor*.py)."""


def found(slurm: SlurmOnKubernetes) -> set[str]:
    return {str(finding["cause"]) for finding in doctor(slurm)[0]["findings"]}


@pytest.fixture(scope="module")
def watching(slurm: SlurmOnKubernetes) -> Iterator[Prometheus]:
    """Our rules, but nothing has to hold for minutes; and with figures of GPUs, which its own does not read."""
    with hurried(slurm, ALERTS, "7s", SCRAPE_JOB) as prometheus:
        wait_until(lambda: not prometheus.states(), "nothing is wrong")
        yield prometheus


@pytest.mark.parametrize("what", TOLD, ids=lambda what: what.__name__)
def test_alertmanager_is_told_what_is_wrong_and_when_it_is_over(
    monitored: Monitored, watching: Prometheus, what: Callable[[Monitored], Iterator[AbstractContextManager[None]]]
) -> None:
    """Others may be told beside it: of a machine that tests share, nobody knows what it is late with."""
    seen: set[str] = set()
    with ExitStack() as wrong:
        for part in what(monitored):
            wrong.enter_context(part)

        def all_were_told() -> bool:
            seen.update(told(monitored.slurm))
            return TOLD[what] <= seen

        try:
            wait_until(all_were_told, f"{TOLD[what]} are told", slowest=3)
        except AssertionError as late:
            raise AssertionError(f"{late}; told were {seen}, Prometheus has {watching.states()}") from None
        if what in FOUND:
            wait_until(lambda: FOUND[what] <= found(monitored.slurm), f"{FOUND[what]} are found", slowest=3)
    wait_until(lambda: not TOLD[what] & told(monitored.slurm), f"{TOLD[what]} are over", slowest=3)
    monitored.slurm.await_idle("default-0", "default-1")


SLOW: Final = {"JailSlow", "SlurmSchedulerSlow"}
"""Alerts that tell how long something takes: what makes a machine slow for them makes it so for all that runs beside.
promtool tries them (tests/unit/slurm/test_alerts.py)."""


def test_every_alert_is_seen_but_of_what_is_slow() -> None:
    assert {alert.name for alert in ALERTS} - SLOW == {name.split()[0] for name in set.union(*TOLD.values())}
