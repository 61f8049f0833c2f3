"""Alerts: when somebody is told, and which runbook says what to do. The one list from which all rules are made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from slurm.names import BACKUP, JOB_METRICS_PORT, REHEARSE

RUNBOOKS: Final = "docs/runbooks.md"
"""The page in the repository on which each alert has its section."""


@dataclass(frozen=True)
class Alert:
    """One rule of Prometheus."""

    name: str
    """In Prometheus' usual form, such as SlurmctldDown. Its section of the runbooks has the same name."""
    expression: str
    """PromQL. What it gives is what is wrong: nothing where all is well."""
    wait: str
    """How long it must hold before somebody is told (`for`), as a duration of Prometheus."""
    summary: str
    """In plain words; may have Prometheus' templates."""
    severity: Literal["critical", "warning"] = "warning"
    """critical: no job can start, or data may be lost. warning: to look at in working hours."""


_NODE = "{{ $labels.node }}"

_GPU = "Hostname, hostname, gpu, UUID"
"""Labels of DCGM's exporter that tell GPUs apart."""


def _backup(metric: str, cronjob: str = BACKUP) -> str:
    """A metric of kube-state-metrics about the CronJob of backups."""
    return f'kube_cronjob_{metric}{{cronjob="{cronjob}"}}'


ALERTS: Final = (
    Alert("SlurmctldDown", "slurmstack_slurmctld_up == 0", "2m", "slurmctld does not answer", "critical"),
    Alert("SlurmdbdDown", "slurmstack_slurmdbd_up == 0", "5m", "slurmdbd or its database does not answer", "critical"),
    Alert(
        # slurmdbd has its own alert, and so has a slurmctld that gives no figures because it is down.
        "SlurmFiguresMissing",
        "absent(slurmstack_slurmctld_up) or "
        '(slurmstack_exporter_up{source!="slurmdbd"} == 0 unless on () slurmstack_slurmctld_up == 0)',
        "10m",
        # absent() knows no source.
        "Figures of Slurm are missing{{ with $labels.source }} ({{ . }}){{ end }}: alerts that need them cannot fire",
        "critical",
    ),
    Alert(
        # Of a node that is down SlurmNodesDown tells: its worker has no figures either, and slurmctld knows of it after
        # SlurmdTimeout (120 s), before the time here is over. Prometheus' own job is named `prometheus`.
        # kube-state-metrics without its rights answers, with a page that has no figures: of pods and of the claims, one
        # of which is Prometheus' own, there are always some.
        "SlurmTargetDown",
        'up{job=~"slurmstack-.+"} == 0 unless on (instance) '
        f'label_replace(slurmstack_node_down == 1, "instance", "$1:{JOB_METRICS_PORT}", "node", "(.+)") or '
        'up{job="slurmstack-kubernetes"} == 1 unless on (instance) (kube_pod_container_status_restarts_total '
        "and on (instance) kube_persistentvolumeclaim_status_phase)",
        "10m",
        "Prometheus has no figures of {{ $labels.instance }}",
    ),
    # Not slurm_nodes_down: it has nodes of an elastic pool for which no machine came, which stay down while it pauses.
    Alert("SlurmNodesDown", "count(slurmstack_node_down == 1)", "10m", "{{ $value }} nodes are down"),
    Alert(
        "SlurmNodeDrained",
        "slurmstack_node_drained == 1",
        "30m",
        f"Node {_NODE} is drained ({{{{ $labels.reason_kind }}}})",
    ),
    Alert(
        "SlurmManyNodesDrained",
        'count by (check) (slurmstack_node_drained{reason_kind="health"} == 1) >= 3',
        "2m",
        "The check {{ $labels.check }} has drained {{ $value }} nodes: rather one common cause than as many faults",
        "critical",
    ),
    Alert(
        "SlurmPrologFailed",
        'slurmstack_node_drained{reason_kind=~"prolog|epilog"} == 1',
        "1m",
        f"The {{{{ $labels.reason_kind }}}} has failed on node {_NODE}",
    ),
    Alert(
        # While it tries once more, there is no such figure.
        "ElasticPoolWithoutNodes",
        "max_over_time(slurmstack_elastic_pool_failures[1h]) >= 10",
        "1m",
        "No node of the elastic pool {{ $labels.pool }} came, {{ $value }} times in a row",
        "critical",
    ),
    Alert(
        "SlurmJobRequeueLoop",
        "slurmstack_job_requeues_max >= 5",
        "1m",
        "A job in {{ $labels.partition }} has been requeued {{ $value }} times",
    ),
    Alert(
        # Microseconds, as in sdiag. By itself slurmctld tries no more jobs in a cycle when the clock has gone on by two
        # seconds (max_sched_time), so one that comes to this end lasts hardly more than 1 to 2 s
        # (src/slurmctld/job_scheduler.c).
        "SlurmSchedulerSlow",
        "slurm_schedule_cycle_last > 1e6",
        "15m",
        "The scheduler's main cycle takes longer than 1 s",
    ),
    Alert(
        # The check writes, syncs and removes one small file: tens of milliseconds where all is well.
        "JailSlow",
        # A check that hangs is ended after 9 s, and then not begun until its process has gone: it takes no time then.
        "max by (cluster, namespace, instance) (max_over_time("
        'slurmstack_health_check_seconds{check="filesystem"}[2m]) > 1 or '
        'slurmstack_health_check_status{check="filesystem",status="not checked"} == 1)',
        "10m",
        "The jail answers slowly on node {{ $labels.instance }}",
    ),
    Alert(
        # Each worker says it of the same volumes; of homes where they have one of their own.
        "JailNearlyFull",
        'max by (path) (slurmstack_health_disk_used_ratio{path=~"/jail(/home)?"}) > 0.9',
        "10m",
        "Less than a tenth of the volume at {{ $labels.path }} is free",
    ),
    Alert(
        "StateVolumeNearlyFull",
        'slurmstack_volume_free_bytes{volume="state"} / slurmstack_volume_size_bytes{volume="state"} < 0.1',
        "5m",
        "Less than a tenth of slurmctld's state volume is free",
        "critical",
    ),
    Alert(
        "SlurmConfigurationRefused",
        "slurmstack_configuration_refused == 1",
        "5m",
        "The configuration agent refuses the new files; slurmctld goes on with the old ones",
    ),
    Alert(
        # Kubernetes waits ever longer, at last 5 minutes between two starts.
        "ContainerRestartLoop",
        # munged is an init container that stays (a native sidecar), which has a figure of its own.
        "max by (namespace, pod, container) (increase(kube_pod_container_status_restarts_total[1h])) >= 5 or "
        "max by (namespace, pod, container) (increase(kube_pod_init_container_status_restarts_total[1h])) >= 5",
        "5m",
        "The container {{ $labels.container }} of {{ $labels.pod }} is started again and again",
    ),
    Alert(
        "ClaimNotBound",
        # A worker's scratch comes with its machine, and its pod is told of by others.
        'kube_persistentvolumeclaim_status_phase{phase=~"Pending|Lost",persistentvolumeclaim!~".+-scratch"} == 1',
        "15m",
        "The claim {{ $labels.persistentvolumeclaim }} has no volume ({{ $labels.phase }})",
        "critical",
    ),
    Alert(
        # One that hangs ends at its time limit. That none was due yet is no fault.
        "BackupFailed",
        f"{_backup('spec_suspend')} == 1 or {_backup('status_active')} == 0 and on (namespace, cronjob) "
        f"({_backup('status_last_schedule_time')} > on (namespace, cronjob) "
        f"({_backup('status_last_successful_time')} or on (namespace, cronjob) {_backup('created')}))",
        "30m",
        "The last backup that was due has failed, or none is made since a restore that was not finished",
    ),
    Alert(
        # Of a Job that `slurmstack backup rehearse` makes, this CronJob is the owner (cli/backup/jobs.py).
        "BackupUnrehearsed",
        f"time() - ({_backup('status_last_successful_time', REHEARSE)} or on (namespace, cronjob) "
        f"{_backup('created', REHEARSE)}) > {30 * 86_400}",
        "1h",
        "Nobody has seen for 30 days whether a cluster starts from the backups, "
        "whose files of the jail `slurmstack backup verify --all` reads",
    ),
    Alert(
        # The exporter writes the error and its text, and perhaps the job, into labels (err_code, err_msg, hpc_job), so
        # that each is a series of its own, which never changes. `hostname`: as it is called after 4.5.3.
        "GpuErrors",
        f"max by ({_GPU}) (increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[15m])) > 0 or "
        f"changes((max by ({_GPU}) (DCGM_FI_DEV_XID_ERRORS))[15m:30s]) > 0",
        "0m",
        "GPU {{ $labels.gpu }} on {{ $labels.Hostname }}{{ $labels.hostname }} has reported an error",
    ),
)


_WHOSE: Final = ("cluster", "namespace")
"""Labels that tell clusters apart, which an Alertmanager may serve several of."""

GROUP_BY: Final = ("alertname", *_WHOSE)
"""What is told in one message: a hundred lost workers are one."""

INHIBITIONS: Final = (
    # Warnings of Slurm are its consequences, or can wait until it is back.
    {
        "source_matchers": ['alertname="SlurmctldDown"'],
        "target_matchers": ['alertname=~"Slurm.+"', 'severity="warning"'],
        "equal": list(_WHOSE),
    },
    {
        "source_matchers": ['alertname="SlurmManyNodesDrained"'],
        "target_matchers": ['alertname="SlurmNodeDrained"'],
        "equal": [*_WHOSE, "check"],
    },
)
"""Alertmanager's `inhibit_rules`: of what follows from something that is told itself, nobody is told."""


def rule_groups(
    alerts: Iterable[Alert], *, runbooks: str | None = None, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a file of rules for Prometheus has, and the `spec` of a PrometheusRule.

    `runbooks`: URL of the page of runbooks; None: nowhere but in the repository. `labels`: more for each.
    """
    rules = []
    for alert in alerts:
        section = alert.name.lower()  # as GitHub, GitLab and Gitea make it of the heading
        url = {} if runbooks is None else {"runbook_url": f"{runbooks}#{section}"}
        rules.append(
            {
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.wait,
                "labels": {**(labels or {}), "severity": alert.severity},
                "annotations": {"summary": alert.summary, "runbook": f"{RUNBOOKS}#{section}", **url},
            }
        )
    return {"groups": [{"name": "slurmstack", "rules": rules}]}


def rules_file(alerts: Iterable[Alert] = ALERTS, *, runbooks: str | None = None) -> str:
    """A file of rules for Prometheus: JSON, which any reader of YAML takes."""
    return json.dumps(rule_groups(alerts, runbooks=runbooks), indent=2) + "\n"
