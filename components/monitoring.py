"""Prometheus and Alertmanager: figures are kept, and somebody is told where something is wrong."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, volumes, workloads
from components.kit.context import STARTING, ClusterArgs, waits
from slurm.names import ALERTMANAGER, ALERTMANAGER_PORT, PROMETHEUS, PROMETHEUS_PORT, content_name
from slurm.prometheus import (
    ALERTMANAGER_DIR,
    ALERTMANAGER_FILE,
    CONFIG_DIR,
    PROMETHEUS_FILE,
    TARGETS_DIR,
    TARGETS_FILE,
    alertmanager_file,
    keeps,
    prometheus_files,
    targets_file,
)

DATA_CLAIM = "prometheus-data"

UID = 954
"""The user `prometheus` of images/Containerfile."""

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

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Monitoring", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._name, self._scope, self._config = name, args.scope, args.config
        monitoring = args.config.monitoring
        self._secret = monitoring.alertmanager_secret
        self._claim = volumes.data_volume(
            f"{name}-data", args.scope, DATA_CLAIM, PROMETHEUS,
            size=monitoring.storage, storage_class=monitoring.storage_class, shared=False, opts=self._child,
        ).claim  # fmt: skip
        self._files = self._create_files()
        self._targets = k8s.core.v1.ConfigMap(
            f"{name}-targets",
            metadata=args.scope.metadata("prometheus-targets", PROMETHEUS),
            data={TARGETS_FILE: targets_file(args.config)},
            opts=self._child,
        )
        for service, port in ((PROMETHEUS, PROMETHEUS_PORT), (ALERTMANAGER, ALERTMANAGER_PORT)):
            # One of the two that is not ready is no reason to cut off the other.
            ports = {"http": port}
            workloads.service(
                f"{name}-{service}", args.scope, PROMETHEUS, ports, self._child, called=service, unready=True
            )
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
