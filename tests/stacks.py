"""Stack files for tests, as sections."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from config.load import read_sections

ROOT = Path(__file__).resolve().parent.parent

ALICE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDx3NUlOfozki1FSZ02oppP6dSN9SuY5iOpFo389/7Qb alice@example"


def dev() -> dict[str, Any]:
    """The committed development stack."""
    return read_sections(ROOT / "Pulumi.dev.yaml")


def existing() -> dict[str, Any]:
    """A stack on a cluster that somebody else made, with one of everything."""
    return {
        "cloud": {"kind": "existing", "context": "prod"},
        "worker_nodes": {
            "cpu": {"size": 4, "resources": {"cpus": 16, "memory": "64Gi"}, "features": ["avx2"]},
            "gpu": {
                "size": 2,
                "resources": {"cpus": 128, "memory": "1600Gi", "gpus": 8},
                "node_selector": {"pool": "gpu"},
                "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
            },
            "plain": {"size": 0, "resources": {"cpus": 2, "memory": "4Gi"}, "security": "baseline"},
        },
        "partitions": {
            "main": {"pools": ["cpu", "gpu"], "default": True, "max_time": "1-00:00:00"},
            "gpu": {"pools": ["gpu"], "settings": {"PriorityTier": 10}},
        },
        "controller": {"storage": "10Gi"},
        "login": {"size": 2, "service_type": "LoadBalancer", "source_ranges": ["203.0.113.0/24"]},
        "jail": {"size": "1Ti", "storage_class": "shared"},
        "users": {"alice": {"uid": 10001, "ssh_authorized_keys": [ALICE_KEY]}},
        "slurm": {"version": "24.11", "settings": {"DefMemPerCPU": 512}},
        "images": {"registry": "registry.example/slurmstack", "pull_secret": "registry"},
    }


def existing_full() -> dict[str, Any]:
    """The same with what is off by default."""
    backup = {"endpoint": "https://storage.example.com", "bucket": "site-backups", "credentials_secret": "backup"}
    return {**existing(), "rest": {"enabled": True, "size": 2}, "backup": backup}


def nebius() -> dict[str, Any]:
    """The committed example for Nebius: two GPU nodes on a fabric, a CPU pool, one of everything else."""
    return read_sections(ROOT / "Pulumi.nebius.yaml")


def nebius_minimum() -> dict[str, Any]:
    """The least that makes a GPU cluster on Nebius."""
    return {
        "cloud": {
            "kind": "nebius",
            "project_id": "project-e00example",
            "subnet_id": "vpcsubnet-e00example",
            "region": "eu-north1",
        },
        "worker_nodes": {
            "default": {
                "size": 2,
                "platform": "gpu-h100-sxm",
                "preset": "8gpu-128vcpu-1600gb",
                "gpu_cluster": {"infiniband_fabric": "fabric-6"},
            }
        },
    }


def nebius_full() -> dict[str, Any]:
    """Nebius with all that can be asked for, and what is there already used by its id."""
    gpu = {"platform": "gpu-h200-sxm", "preset": "8gpu-128vcpu-1600gb"}
    sections = nebius_minimum()
    sections["cloud"] |= {
        "region": "us-central1",
        "name": "full",
        "kubernetes": {
            "version": "1.36",
            "control_plane_size": 1,
            "allowed_cidrs": ["203.0.113.0/24"],
            "audit_logs": True,
            "service_cidr": "10.96.0.0/16",
        },
        "credentials": "sdk",
        "ssh_keys": [ALICE_KEY],
    }
    del sections["cloud"]["subnet_id"]
    sections["worker_nodes"] = {
        "big": {**gpu, "size": 250, "gpu_cluster": {"infiniband_fabric": "us-central1-a"}},
        "spot": {
            **gpu,
            "size": 3,
            "gpu_cluster": {"infiniband_fabric": "us-central1-a"},
            "preemptible": True,
            "local_disks": {"use": "ephemeral"},
            "update_strategy": {"max_unavailable": "25%"},
        },
        "reserved": {
            **gpu,
            "size": 2,
            "gpu_cluster": {"id": "computegpucluster-e00there"},
            "reservation": {"policy": "STRICT", "ids": ["capacityblockgroup-e00example"]},
            "local_disks": {"use": "passthrough"},
        },
        "cpu": {"size": 0, "platform": "cpu-d3", "preset": "16vcpu-64gb", "security": "baseline"},
    }
    sections |= {
        "controller": {"storage": "64Gi", "filesystem": {"type": "NETWORK_SSD", "block_size": "8Ki"}},
        "login": {"service_type": "LoadBalancer"},
        "jail": {"size": "4Ti", "filesystem": {"id": "computefilesystem-e00there"}},
        "mounts": {
            "data": {"path": "/data", "size": "8Ti", "filesystem": {"type": "WEKA", "forbid_deletion": False}},
            "models": {"path": "/models", "filesystem": {"id": "computefilesystem-e00models"}},
        },
        "images": {"registry": "cr.us-central1.nebius.cloud/e00registry/slurmstack", "tag": "1"},
    }
    return sections


def with_change(sections: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at a dotted path replaced."""
    changed = copy.deepcopy(sections)
    *parents, last = path.split(".")
    at = changed
    for part in parents:
        at = at.setdefault(part, {})
    at[last] = value
    return changed


def with_pools(count: int, size: int = 2) -> dict[str, Any]:
    """The development stack with `count` pools."""
    pool = {"size": size, "resources": {"cpus": 2, "memory": "2Gi"}}
    sections = dev()
    sections["worker_nodes"] = {f"pool{number}": pool for number in range(count)}
    del sections["partitions"]
    return sections
