"""Alerts, as Prometheus' own promtool judges them: each fires where it should, and not where all is well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from config import load_config
from slurm.alerts import ALERTS, rules_file
from slurm.prometheus import CONFIG_DIR, prometheus_files
from tests import alerts, stacks
from tests.stacks import with_change

UP = {"slurmstack_slurmctld_up": "1x200"}

FREE = 'slurmstack_volume_free_bytes{volume="state"}'
SIZE = 'slurmstack_volume_size_bytes{volume="state"}'
JAIL = 'slurmstack_health_{0}",instance="n{1}:9306"}}'
DRAINED = 'slurmstack_node_drained{{node="n{0}",reason_kind="{1}",check="{2}"}}'
XID = 'DCGM_FI_DEV_XID_ERRORS{{Hostname="g",gpu="0",UUID="u",err_code="{0}",hpc_job="{1}"}}'
EXPORTER = 'slurmstack_exporter_up{{source="{0}"}}'
BACKUP = 'kube_cronjob_{0}{{namespace="slurm",cronjob="backup"}}'

REHEARSED = BACKUP.replace("backup", "rehearse")

# Name of the alert -> figures (one value a minute) with which it fires, and with which it does not.
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "SlurmctldDown": ({"slurmstack_slurmctld_up": "0x200"}, UP),
    "SlurmdbdDown": ({"slurmstack_slurmdbd_up": "0x200"}, {"slurmstack_slurmdbd_up": "1x200"}),
    "SlurmFiguresMissing": ({"other": "1x200"}, {**UP, EXPORTER.format("slurmdbd"): "0x200"}),
    "SlurmTargetDown": (
        {'up{job="slurmstack-jobs",instance="n0:9306"}': "0x200"},
        {'up{job="slurmstack-jobs",instance="n0:9306"}': "1x200", 'up{job="prometheus"}': "0x200"},
    ),
    "SlurmNodesDown": (
        {f'slurmstack_node_down{{node="n{n}"}}': "1x200" for n in range(2)},
        {"slurm_nodes_down": "2x200", 'slurmstack_elastic_pool_failures{pool="gpu"}': "9x200"},
    ),
    "SlurmNodeDrained": ({DRAINED.format(0, "health", "dns"): "1x200"}, {DRAINED.format(0, "health", "dns"): "0x200"}),
    "SlurmManyNodesDrained": (
        {DRAINED.format(n, "health", "dns"): "1x200" for n in range(3)},
        {DRAINED.format(n, "health", "dns" if n else "clock"): "1x200" for n in range(3)},
    ),
    "SlurmPrologFailed": ({DRAINED.format(0, "prolog", ""): "1x200"}, {DRAINED.format(0, "health", "dns"): "1x200"}),
    "SlurmJobRequeueLoop": ({"slurmstack_job_requeues_max": "5x200"}, {"slurmstack_job_requeues_max": "4x200"}),
    "SlurmSchedulerSlow": (
        {"slurm_schedule_cycle_last": "1000001x200"},
        {"slurm_schedule_cycle_last": "999999x200"},
    ),
    "JailSlow": (
        {JAIL.format('check_seconds{check="filesystem', 0): "1.5x200"},
        {
            JAIL.format('check_seconds{check="filesystem', 0): "0.5x200",
            JAIL.format('check_seconds{check="dns', 0): "1.5x200",
        },
    ),
    "JailNearlyFull": (
        {JAIL.format('disk_used_ratio{path="/jail', n): f"{0.91 if n else 0.5}x200" for n in range(2)},
        {
            JAIL.format('disk_used_ratio{path="/jail', 0): "0.89x200",
            JAIL.format('disk_used_ratio{path="/', 0): "0.95x200",
        },
    ),
    "StateVolumeNearlyFull": ({FREE: "9x200", SIZE: "100x200"}, {FREE: "11x200", SIZE: "100x200"}),
    "SlurmConfigurationRefused": (
        {"slurmstack_configuration_refused": "1x200"},
        {"slurmstack_configuration_refused": "0x200"},
    ),
    "ElasticPoolWithoutNodes": (
        {'slurmstack_elastic_pool_failures{pool="gpu"}': "10x20 _x50 11x130"},
        {'slurmstack_elastic_pool_failures{pool="gpu"}': "9x200"},
    ),
    "ContainerRestartLoop": (
        {'kube_pod_init_container_status_restarts_total{pod="p",container="munged"}': "0+0.2x200"},  # each 5 minutes
        {'kube_pod_container_status_restarts_total{pod="p",container="c"}': "0x50 3x150"},
    ),
    "ClaimNotBound": (
        {'kube_persistentvolumeclaim_status_phase{persistentvolumeclaim="jail",phase="Pending"}': "1x200"},
        {
            'kube_persistentvolumeclaim_status_phase{persistentvolumeclaim="jail",phase="Bound"}': "1x200",
            'kube_persistentvolumeclaim_status_phase{persistentvolumeclaim="jail",phase="Pending"}': "0x200",
            'kube_persistentvolumeclaim_status_phase{persistentvolumeclaim="gpu-0-scratch",phase="Pending"}': "1x200",
        },
    ),
    "BackupFailed": (
        {
            BACKUP.format("status_active"): "0x200",
            BACKUP.format("status_last_schedule_time"): "_x9 600x190",
            BACKUP.format("created"): "500x200",
        },
        {  # The next one, after one that failed.
            BACKUP.format("status_active"): "1x200",
            BACKUP.format("spec_suspend"): "0x200",
            BACKUP.format("status_last_schedule_time"): "600x200",
            BACKUP.format("status_last_successful_time"): "500x200",
            BACKUP.format("created"): "0x200",
        },
    ),
    "BackupUnrehearsed": (
        {REHEARSED.format("created"): "-3000000x200"},  # promtool's clock starts at 0
        {
            REHEARSED.format("created"): "-3000000x200",
            REHEARSED.format("status_last_successful_time"): "-2000000x200",
            BACKUP.format("status_last_successful_time"): "-3000000x200",
        },
    ),
    "GpuErrors": (
        {XID.format(0, 1): "0x94 _x105", XID.format(79, 1): "_x95 79x104"},
        {  # An error of hours ago, and a job that begins on that GPU.
            XID.format(79, 1): "79x94 _x105",
            XID.format(79, 2): "_x95 79x104",
            'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{Hostname="g",gpu="0",UUID="u"}': "3x200",
        },
    ),
}


_DUE = {BACKUP.format("status_last_schedule_time"): "600x200", BACKUP.format("created"): "0x200"}
_MADE = {**_DUE, BACKUP.format("status_active"): "0x200", BACKUP.format("status_last_successful_time"): "700x200"}
_NO_JOBS = {EXPORTER.format("jobs"): "0x200"}
_TOOK = JAIL.format('check_seconds{check="filesystem', 0)
_STATUS = JAIL.format('check_status{status="not checked",check="filesystem', 0)
_WORKER = 'up{{job="slurmstack-jobs",instance="n{0}:9306"}}'
_DOWN = {'slurmstack_node_down{node="n0"}': "_x10 1x200"}  # slurmctld says it later
_KUBE = 'instance="kube-state:8080",job="slurmstack-kubernetes"'
_PODS = f'kube_pod_container_status_restarts_total{{{_KUBE},pod="p"}}'
_CLAIMS = f'kube_persistentvolumeclaim_status_phase{{{_KUBE},phase="Bound"}}'
# There for the first quarter of an hour, as after a start of kube-state-metrics without its rights.
_LOST, _THERE = "0x15 _x185", "0x200"

MORE: tuple[alerts.Case, ...] = (
    # Backups that none makes are told, and those that were made are not.
    ("BackupFailed", {BACKUP.format("spec_suspend"): "1x200"}, True),
    ("BackupFailed", {**_MADE, 'kube_cronjob_spec_suspend{namespace="slurm",cronjob="restore"}': "1x200"}, False),
    ("BackupFailed", {**_MADE, BACKUP.format("status_last_successful_time"): "500x200"}, True),
    # A source that cannot be read is told, unless slurmctld is down.
    ("SlurmFiguresMissing", {**UP, **_NO_JOBS}, True),
    ("SlurmFiguresMissing", {"slurmstack_slurmctld_up": "0x200", **_NO_JOBS}, False),
    # A jail that hangs is told, though its check takes no time then.
    ("JailSlow", {_TOOK: "9 0x199", _STATUS: "0 0x199"}, False),
    ("JailSlow", {_TOOK: "9 0x199", _STATUS: "0 1x199"}, True),
    # Homes on a volume of their own.
    ("JailNearlyFull", {JAIL.format('disk_used_ratio{path="/jail/home', 0): "0.91x200"}, True),
    # A worker whose node is down is not told twice.
    ("SlurmTargetDown", {_WORKER.format(0): "0x200", **_DOWN}, False),
    ("SlurmTargetDown", {_WORKER.format(1): "0x200", **_DOWN}, True),
    # kube-state-metrics that answers without figures is told.
    *(
        ("SlurmTargetDown", {f"up{{{_KUBE}}}": "1x200", _PODS: pods, _CLAIMS: claims}, _LOST in (pods, claims))
        for pods in (_LOST, _THERE)
        for claims in (_LOST, _THERE)
    ),
)
"""Further cases: name, figures, and whether the alert fires."""


def test_each_alert_fires_where_it_should_and_not_where_all_is_well(promtool: str, tmp_path: Path) -> None:
    assert CASES.keys() == {alert.name for alert in ALERTS}
    ill, well = ([(name, figures[number], not number) for name, figures in CASES.items()] for number in (0, 1))
    assert alerts.wrong(promtool, tmp_path, rules_file(), [*ill, *well, *MORE]) == ""


def test_errors_of_memory_and_the_newer_name_of_the_machine_are_told_too(promtool: str, tmp_path: Path) -> None:
    errors = {'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{hostname="g",gpu="0",UUID="u"}': "0x95 1x100"}
    (rule,) = (alert for alert in ALERTS if alert.name == "GpuErrors")
    assert alerts.wrong(promtool, tmp_path, rules_file([rule]), [("GpuErrors", errors, True)]) == ""
    summary = alerts.summary(promtool, tmp_path, rules_file([rule]), "GpuErrors", errors)
    assert summary == "GPU 0 on g has reported an error"


@pytest.mark.parametrize("given", [{}, {**UP, EXPORTER.format("jobs"): "0x200"}], ids=["none", "without jobs"])
def test_what_is_missing_is_named_where_it_is_known(promtool: str, tmp_path: Path, given: dict[str, str]) -> None:
    summary = alerts.summary(promtool, tmp_path, rules_file(), "SlurmFiguresMissing", {"other": "1x200", **given})
    which = " (jobs)" if given else ""
    assert summary == f"Figures of Slurm are missing{which}: alerts that need them cannot fire"


def test_promtool_takes_the_configuration_and_its_rules(promtool: str, tmp_path: Path) -> None:
    monitoring = {"install": True, "kube_state": True, "kube_state_image": "r.example.com/metrics:v2"}
    config = load_config(with_change(stacks.existing(), "monitoring", monitoring))
    for name, text in prometheus_files(config).items():
        (tmp_path / name).write_text(text.replace(CONFIG_DIR, str(tmp_path)))
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
