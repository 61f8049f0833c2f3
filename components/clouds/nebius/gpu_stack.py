"""What the cluster runs so that pods can ask for InfiniBand devices."""

from __future__ import annotations

import json

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.nebius.node_groups import RDMA_LABEL
from components.kit import pods, volumes
from components.kit.context import recommended_labels
from slurm.names import content_name

RDMA_RESOURCE = "rdma/ib"
"""Kubernetes resource through which a pod gets the machine's InfiniBand devices."""

PLUGIN_IMAGE = "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:network-operator-v26.4.1"
"""Of NVIDIA's Network Operator 26.4 (docs.nvidia.com)."""

_NAMESPACE = "kube-system"
_PLUGIN = "rdma-device-plugin"
_KUBELET = "/var/lib/kubelet"

MELLANOX = "15b3"
"""PCI vendor of the InfiniBand devices."""

SHARES = 63
"""Pods that may have a machine's devices at once; the number in NVIDIA's documentation. Workers are alone."""


class GpuStack(pulumi.ComponentResource):
    """What the machines' images lack, which have the drivers.

    They come with a device plugin for GPUs, but with none for InfiniBand: a container sees those devices only if it is
    privileged, or if somebody offers them as a resource.
    """

    def __init__(self, name: str, prefix: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """`prefix`: name of the cluster in labels."""
        super().__init__("slurmstack:index:GpuStack", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config = plugin_config(RDMA_RESOURCE)
        labels = recommended_labels(prefix, _PLUGIN)
        called = content_name(_PLUGIN, config)
        files = k8s.core.v1.ConfigMap(
            f"{name}-rdma-config",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=called, namespace=_NAMESPACE, labels=labels),
            data={"config.json": config},
            opts=child,
        )
        k8s.apps.v1.DaemonSet(
            f"{name}-rdma-plugin",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=_PLUGIN, namespace=_NAMESPACE, labels=labels),
            spec=k8s.apps.v1.DaemonSetSpecArgs(
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=_plugin_pod(called)
                ),
            ),
            opts=child.merge(pulumi.ResourceOptions(depends_on=[files])),
        )
        self.register_outputs({})


def plugin_config(resource: str) -> str:
    """Configuration of the device plugin: all InfiniBand devices of a machine under one resource."""
    prefix, _, name = resource.partition("/")
    selectors = {"vendors": [MELLANOX], "linkTypes": ["infiniband"]}
    offer = {"resourcePrefix": prefix, "resourceName": name, "rdmaHcaMax": SHARES, "selectors": selectors}
    return json.dumps({"periodicUpdateInterval": 300, "configList": [offer]}, sort_keys=True)


def _plugin_pod(config_map: str) -> k8s.core.v1.PodSpecArgs:
    """Lists the devices in /sys, in the machine's network, and tells the kubelet of them.

    It opens none, so it needs no privilege but to be root, whom the kubelet's directories belong to.
    """
    return k8s.core.v1.PodSpecArgs(
        automount_service_account_token=False,
        enable_service_links=False,
        host_network=True,
        security_context=k8s.core.v1.PodSecurityContextArgs(
            seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault")
        ),
        priority_class_name="system-node-critical",
        node_selector={RDMA_LABEL: "true"},
        tolerations=[k8s.core.v1.TolerationArgs(operator="Exists")],
        containers=[
            k8s.core.v1.ContainerArgs(
                name="plugin",
                image=PLUGIN_IMAGE,
                security_context=k8s.core.v1.SecurityContextArgs(allow_privilege_escalation=False, run_as_user=0),
                volume_mounts=[
                    volumes.mount("devices", f"{_KUBELET}/device-plugins"),
                    volumes.mount("registry", f"{_KUBELET}/plugins_registry"),
                    volumes.mount("config", "/k8s-rdma-shared-dev-plugin", read_only=True),
                    volumes.mount("tmp", "/tmp"),
                ],
                resources=pods.resources(cpu="10m", memory="32Mi", memory_limit="128Mi"),
            )
        ],
        volumes=[
            volumes.host_directory("devices", f"{_KUBELET}/device-plugins"),
            volumes.host_directory("registry", f"{_KUBELET}/plugins_registry"),
            volumes.config_volume("config", config_map),
            volumes.empty_dir("tmp", size_limit=pods.DISK),
        ],
    )
