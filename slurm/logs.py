"""What the OpenTelemetry Collector is told: which logs it reads, and where it sends them.

JSON, which any reader of YAML takes.
"""

from __future__ import annotations

import json
from typing import Final

from config.cluster import ClusterConfig
from config.sections.monitoring import Otlp
from slurm.names import LOG_SHIPPER

CONFIG_DIR: Final = "/config/collector"
CONFIG_FILE: Final = "collector.yaml"
POD_LOGS: Final = "/var/log/pods"
"""Where kubelet keeps the logs of a machine's pods: NAMESPACE_POD_UID/CONTAINER/RESTARTS.log."""
POSITIONS: Final = "/positions"


def header_variable(number: int) -> str:
    """Environment variable with the content of a header."""
    return f"HEADER_{number}"


def collector_file(config: ClusterConfig, otlp: Otlp) -> str:
    """The collector's configuration."""
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
