"""A stack file for Nebius."""

from __future__ import annotations

from typing import Any

NEBIUS: dict[str, Any] = {
    "cloud": {"kind": "nebius", "project_id": "project-e00a", "region": "eu-north1", "subnet_id": "vpcsubnet-e00a"},
    "worker_nodes": {
        "default": {
            "size": 2,
            "platform": "gpu-h100-sxm",
            "preset": "8gpu-128vcpu-1600gb",
            "gpu_cluster": {"infiniband_fabric": "fabric-6"},
        }
    },
    "jail": {"size": "2Ti"},
}
