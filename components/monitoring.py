"""Metrics are kept, and somebody is told: by a Prometheus of our own or an existing one. And dashboards."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.apiextensions import CustomResource

from components.kit import pods, rbac, volumes, workloads
from components.kit.context import STARTING, Scope, waits
from slurm.local_cluster import KUBE_STATE_IMAGE
from slurm.names import (
    ALERTMANAGER,
    ALERTMANAGER_PORT,
    EXPORTER,
    KUBE_STATE,
    KUBE_STATE_PORT,
    PROMETHEUS,
    PROMETHEUS_PORT,
    WORKER,
    content_name,
)
from slurm.prometheus import (
    ALERTMANAGER_DIR,
    ALERTMANAGER_FILE,
    API,
    CONFIG_DIR,
    PROMETHEUS_FILE,
    RESOURCES,
    TARGETS_DIR,
    TARGETS_FILE,
    Spec,
    alertmanager_file,
    exporter_monitor,
    jobs_monitor,
    keeps,
    kube_metrics,
    prometheus_files,
    rules,
    targets_file,
)

DATA_CLAIM = "prometheus-data"

UID = 954
"""The user `prometheus` of images/Containerfile."""

NOBODY = 65534
"""As upstream's image of kube-state-metrics has it."""

_OWN_FIGURES_PORT = 8081
"""Where that has metrics of itself, which nobody reads."""

_DATA = "/data"

_QUESTIONS = ("--query.max-samples=10000000", "--query.max-concurrency=8", "--query.timeout=30s")
"""Bounds of what one who asks may take: some 160 MB of memory a question (16 bytes a sample), of the container's 8 GiB,
and eight at once. Prometheus' own are 50 million samples, 20 at once, and two minutes."""


class Monitoring(pulumi.ComponentResource):
    """A StatefulSet of one pod with both, its claim, and a Service for each.

    It has no right in Kubernetes: what it reads has names that the stack file says. Configuration and rules are named
    after their content, so that a change rolls the pod, which misses a reading or two; the list of workers is changed
    in place, and Prometheus follows it.
    """

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Monitoring", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._name, self._scope, self._config = name, scope, scope.config
        monitoring = scope.config.monitoring
        self._secret = monitoring.alertmanager_secret
        self._claim = volumes.data_volume(
            f"{name}-data", scope, DATA_CLAIM, PROMETHEUS,
            size=monitoring.storage, storage_class=monitoring.storage_class, shared=False, opts=self._child,
        ).claim  # fmt: skip
        self._files = self._create_files()
        self._targets = k8s.core.v1.ConfigMap(
            f"{name}-targets",
            metadata=scope.metadata("prometheus-targets", PROMETHEUS),
            data={TARGETS_FILE: targets_file(scope.config)},
            opts=self._child,
        )
        for service, port in ((PROMETHEUS, PROMETHEUS_PORT), (ALERTMANAGER, ALERTMANAGER_PORT)):
            # One of the two that is not ready is no reason to cut off the other.
            ports = {"http": port}
            workloads.service(f"{name}-{service}", scope, PROMETHEUS, ports, self._child, called=service, unready=True)
        self._create_stateful_set()
        self.register_outputs({})

    def _create_files(self) -> k8s.core.v1.ConfigMap:
        files = prometheus_files(self._config)
        if self._secret is None:
            files[ALERTMANAGER_FILE] = alertmanager_file()
        return k8s.core.v1.ConfigMap(
            f"{self._name}-files",
            metadata=self._scope.metadata(content_name(PROMETHEUS, files), PROMETHEUS),
            data=files,
            immutable=True,
            opts=workloads.named_by_content(self._child),
        )

    def _create_stateful_set(self) -> None:
        scope, files = self._scope, self._files.metadata.name
        whom = (
            volumes.config_volume(ALERTMANAGER, files, only=[ALERTMANAGER_FILE])
            if self._secret is None
            else volumes.secret_volume(ALERTMANAGER, self._secret, mode=0o444)
        )
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=60,
            dns_config=scope.node_dns,
            init_containers=[self._own_data()],
            containers=[self._prometheus(), self._alertmanager()],
            volumes=[
                volumes.claim_volume("data", self._claim.metadata.name),
                volumes.config_volume("config", files),
                volumes.config_volume("targets", self._targets.metadata.name),
                whom,
            ],
        )
        workloads.stateful_set(
            self._name,
            scope.metadata(PROMETHEUS, PROMETHEUS),
            scope.label_selector(PROMETHEUS),
            pods.pod_template(scope, PROMETHEUS, scope.cloud.placement("system"), pod),
            self._child.merge(waits(STARTING)),
        )

    def _own_data(self) -> k8s.core.v1.ContainerArgs:
        """A new volume is root's. Kubernetes' own way (`fsGroup`) leaves directories of a machine as they are."""
        return k8s.core.v1.ContainerArgs(
            name="own-data",
            image=self._scope.image("monitoring"),
            command=["/usr/bin/chown", f"{UID}:{UID}", _DATA],
            volume_mounts=[volumes.mount("data", _DATA)],
            resources=pods.resources(cpu="5m", memory="16Mi"),
            termination_message_policy="FallbackToLogsOnError",
        )

    def _prometheus(self) -> k8s.core.v1.ContainerArgs:
        kept = keeps(self._config)
        return k8s.core.v1.ContainerArgs(
            name=PROMETHEUS,
            image=self._scope.image("monitoring"),
            command=[
                "/usr/bin/prometheus",
                f"--config.file={CONFIG_DIR}/{PROMETHEUS_FILE}",
                f"--storage.tsdb.path={_DATA}/prometheus",
                f"--storage.tsdb.retention.time={kept['time']}",
                f"--storage.tsdb.retention.size={kept['size']}",
                f"--web.listen-address=:{PROMETHEUS_PORT}",
                *_QUESTIONS,
            ],
            volume_mounts=[
                volumes.mount("data", _DATA),
                volumes.mount("config", CONFIG_DIR, read_only=True),
                volumes.mount("targets", TARGETS_DIR, read_only=True),
            ],
            resources=pods.resources(cpu="50m", memory="256Mi", memory_limit="8Gi"),
            **_serving(PROMETHEUS_PORT),
        )

    def _alertmanager(self) -> k8s.core.v1.ContainerArgs:
        return k8s.core.v1.ContainerArgs(
            name=ALERTMANAGER,
            image=self._scope.image("monitoring"),
            command=[
                "/usr/bin/prometheus-alertmanager",
                f"--config.file={ALERTMANAGER_DIR}/{ALERTMANAGER_FILE}",
                f"--storage.path={_DATA}/alertmanager",
                f"--web.listen-address=:{ALERTMANAGER_PORT}",
                # There is no other one to agree with.
                "--cluster.listen-address=",
            ],
            volume_mounts=[volumes.mount("data", _DATA), volumes.mount(ALERTMANAGER, ALERTMANAGER_DIR, read_only=True)],
            resources=pods.resources(cpu="10m", memory="32Mi", memory_limit="1Gi"),
            **_serving(ALERTMANAGER_PORT),
        )


def _serving(port: int) -> dict[str, Any]:
    """What a container has that answers on a port. A configuration that it refuses is what a failed update shows."""
    return {
        "security_context": pods.runs_as(UID),
        **pods.serving(f"port-{port}", port, pods.http_probe("/-/ready", port, period=10, timeout=5)),
        "termination_message_policy": "FallbackToLogsOnError",
    }


class KubeState(pulumi.ComponentResource):
    """kube-state-metrics, for metrics of the cluster's own pods and volumes: a Deployment of one pod and its Service.

    It may list pods, claims and what makes pods, in this namespace alone: no Secret, nothing of the machines.
    """

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:KubeState", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        allowed = [rbac.rule(kind, "list", "watch", group=group) for kind, group in RESOURCES.items()]
        account = rbac.account(name, scope, KUBE_STATE, allowed, child)
        workloads.service(f"{name}-service", scope, KUBE_STATE, {"metrics": KUBE_STATE_PORT}, child)
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            termination_grace_period_seconds=5,
            containers=[_kube_state(scope)],
            volumes=[pods.token_volume(mode=0o444)],
        )
        template = pods.pod_template(scope, KUBE_STATE, scope.cloud.placement("system"), pod)
        workloads.deployment(name, scope, KUBE_STATE, template, child)
        self.register_outputs({})


def _kube_state(scope: Scope) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=KUBE_STATE,
        image=scope.config.monitoring.kube_state_image or KUBE_STATE_IMAGE,
        args=[
            f"--namespaces={scope.name}",
            f"--resources={','.join(RESOURCES)}",
            f"--metric-allowlist={','.join(kube_metrics())}",
            f"--port={KUBE_STATE_PORT}",
            "--telemetry-host=127.0.0.1",
            f"--telemetry-port={_OWN_FIGURES_PORT}",
        ],
        security_context=pods.runs_as(NOBODY),
        **pods.serving("metrics", KUBE_STATE_PORT, pods.http_probe("/healthz", KUBE_STATE_PORT, period=30, timeout=5)),
        volume_mounts=[pods.token_mount()],
        resources=pods.resources(cpu="5m", memory="32Mi", memory_limit="512Mi"),
        termination_message_policy="FallbackToLogsOnError",
    )


class PrometheusOperator(pulumi.ComponentResource):
    """Objects that a Prometheus operator reads; nothing of them runs.

    The operator and its API are somebody else's, and must be there before.
    """

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:PrometheusOperator", name, None, opts)
        self._name, self._scope = name, scope
        self._child = pulumi.ResourceOptions(parent=self)
        config, selector = scope.config, scope.selector
        self._create("ServiceMonitor", EXPORTER, exporter_monitor(config, selector(EXPORTER)))
        self._create("PodMonitor", "workers", jobs_monitor(config, selector(WORKER)))
        self._create("PrometheusRule", "slurm", rules(config))
        self.register_outputs({})

    def _create(self, kind: str, name: str, spec: Spec) -> None:
        metadata = self._scope.metadata(name, "monitoring")
        existing = self._scope.config.monitoring.existing
        assert existing is not None
        # By which the Prometheus selects these objects.
        metadata.labels = {**existing.labels, **self._scope.labels("monitoring")}
        CustomResource(
            f"{self._name}-{kind.lower()}-{name}",
            api_version=API,
            kind=kind,
            metadata=metadata,
            spec=spec,
            opts=self._child,
        )


_LABEL = {"grafana_dashboard": "1"}
"""By which the sidecar of Grafana's own chart and of kube-prometheus-stack finds dashboards."""


class GrafanaDashboards(pulumi.ComponentResource):
    """A ConfigMap with all dashboards for a site's Grafana, changed in place: the sidecar follows it."""

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:GrafanaDashboards", name, None, opts)
        from slurm.dashboards.grafana import dashboard_files  # noqa: PLC0415  a fifth of a second, for those who ask

        metadata = scope.metadata("grafana-dashboards", "monitoring")
        metadata.labels = {**scope.labels("monitoring"), **_LABEL}
        k8s.core.v1.ConfigMap(
            f"{name}-files",
            metadata=metadata,
            data=dashboard_files(scope.config),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
