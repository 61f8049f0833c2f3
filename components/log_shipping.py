"""Ships the logs of the cluster's pods to a server of yours, if the stack file names one."""

from __future__ import annotations

import json
from typing import Final

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit import pods, volumes
from components.kit.context import Scope
from config.cluster import ClusterConfig
from config.sections.monitoring import Otlp
from slurm.names import LOG_SHIPPER, content_name

CONFIG_DIR: Final = "/config/collector"
CONFIG_FILE: Final = "collector.yaml"
POD_LOGS: Final = "/var/log/pods"
"""Where kubelet keeps the logs of a machine's pods: NAMESPACE_POD_UID/CONTAINER/RESTARTS.log."""
POSITIONS: Final = "/positions"

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


def header_variable(number: int) -> str:
    """Environment variable with the content of a header."""
    return f"HEADER_{number}"


def collector_file(config: ClusterConfig, otlp: Otlp) -> str:
    """The collector's configuration: which logs it reads, and where it sends them. JSON is YAML, too."""
    namespace = config.cluster.namespace
    headers = {name: f"${{env:{header_variable(number)}}}" for number, name in enumerate(otlp.headers)}
    document = {
        "extensions": {"file_storage": {"directory": POSITIONS}},
        "receivers": {
            "filelog": {
                "include": [f"{POD_LOGS}/{namespace}_*/*/*.log"],
                # What it complains about itself would be the next to be sent. By its container, which no other pod has:
                # pools may be called as they like, `log-shipper-gpu` too.
                "exclude": [f"{POD_LOGS}/{namespace}_*/{LOG_SHIPPER}/*.log"],
                "include_file_path": True,
                "include_file_name": False,
                "start_at": "beginning",
                "storage": "file_storage",
                "resource": {
                    "k8s.node.name": "${env:NODE}",
                    "k8s.cluster.name": config.slurm.cluster_name,
                    "service.namespace": namespace,
                },
                # Pod and container from the path, time and text from the runtime's line.
                "operators": [
                    {"type": "container", "format": "containerd", "add_metadata_from_filepath": True},
                    {"type": "copy", "from": 'resource["k8s.container.name"]', "to": 'resource["service.name"]'},
                ],
            }
        },
        "exporters": {
            "otlphttp": {
                "endpoint": otlp.endpoint,
                **({"headers": headers} if headers else {}),
                # A server that is away for a day gets all that Kubernetes has kept until then: nothing is given up, and
                # nothing is read meanwhile.
                "retry_on_failure": {"max_elapsed_time": "0s"},
                "sending_queue": {"storage": "file_storage", "block_on_overflow": True, "queue_size": 1000},
            }
        },
        "service": {
            "extensions": ["file_storage"],
            "pipelines": {"logs": {"receivers": ["filelog"], "exporters": ["otlphttp"]}},
            # It would open a port for its own figures.
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    return json.dumps(document, indent=2) + "\n"
