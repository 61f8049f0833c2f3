"""Ships the logs of the cluster's pods to a server of yours, if the stack file names one."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit import pods, volumes
from components.kit.context import Scope
from config.sections.monitoring import Otlp
from slurm.logs import CONFIG_DIR, CONFIG_FILE, POD_LOGS, POSITIONS, collector_file, header_variable
from slurm.names import LOG_SHIPPER, content_name

_HEADER_KEY = "value"
"""Of the Secret with a header's content."""


class LogShipping(pulumi.ComponentResource):
    """A DaemonSet with one OpenTelemetry Collector on each machine.

    It has no right in Kubernetes and no capability. It is root, whose files kubelet's logs are.
    """

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:LogShipping", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        otlp = scope.config.logs.otlp
        assert otlp is not None
        files = {CONFIG_FILE: collector_file(scope.config, otlp)}
        config = k8s.core.v1.ConfigMap(
            f"{name}-config",
            metadata=scope.metadata(content_name(LOG_SHIPPER, files), LOG_SHIPPER),
            data=files,
            immutable=True,
            opts=child,
        )
        pod = _pod(otlp, config)
        template = pods.pod_template(scope, LOG_SHIPPER, Placement(), pod)
        # Wherever a pod of the cluster may be, as on machines with GPUs.
        pod.tolerations = [k8s.core.v1.TolerationArgs(operator="Exists")]
        k8s.apps.v1.DaemonSet(
            f"{name}-pods",
            metadata=scope.metadata(LOG_SHIPPER, LOG_SHIPPER),
            spec=k8s.apps.v1.DaemonSetSpecArgs(selector=scope.label_selector(LOG_SHIPPER), template=template),
            opts=child,
        )
        self.register_outputs({})


def _pod(otlp: Otlp, config: k8s.core.v1.ConfigMap) -> k8s.core.v1.PodSpecArgs:
    return k8s.core.v1.PodSpecArgs(
        termination_grace_period_seconds=30,
        containers=[_collector(otlp)],
        volumes=[
            volumes.config_volume("config", config.metadata.name),
            volumes.host_directory("logs", POD_LOGS),
            # Of the pod: a new one sends again what kubelet still has. On the machine it would outlive the cluster.
            volumes.empty_dir("positions", size_limit="1Gi"),
        ],
    )


def _collector(otlp: Otlp) -> k8s.core.v1.ContainerArgs:
    headers = [
        k8s.core.v1.EnvVarArgs(
            name=header_variable(number),
            value_from=k8s.core.v1.EnvVarSourceArgs(
                secret_key_ref=k8s.core.v1.SecretKeySelectorArgs(name=secret, key=_HEADER_KEY)
            ),
        )
        for number, secret in enumerate(otlp.headers.values())
    ]
    return k8s.core.v1.ContainerArgs(
        name=LOG_SHIPPER,
        image=otlp.image,
        args=[f"--config={CONFIG_DIR}/{CONFIG_FILE}"],
        env=[pods.field_env("NODE", "spec.nodeName"), *pods.env(GOMEMLIMIT="200MiB"), *headers],
        security_context=k8s.core.v1.SecurityContextArgs(run_as_user=0, run_as_group=0),
        volume_mounts=[
            volumes.mount("config", CONFIG_DIR, read_only=True),
            volumes.mount("logs", POD_LOGS, read_only=True),
            volumes.mount("positions", POSITIONS),
        ],
        resources=pods.resources(cpu="20m", memory="64Mi", memory_limit="256Mi"),
        termination_message_policy="FallbackToLogsOnError",
    )
