"""What the cluster runs so that pods can ask for GPUs and InfiniBand devices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict

import pulumi
import pulumi_kubernetes as k8s
import yaml

from components.clouds.nebius.placement import RDMA_LABEL
from components.kit import pods, volumes
from components.kit.context import recommended_labels
from slurm.names import content_name

_CHARTS = Path(__file__).resolve().parent / "charts.yaml"

_NAMESPACE = "kube-system"
_PLUGIN = "rdma-device-plugin"
_KUBELET = "/var/lib/kubelet"

_ALL: list[k8s.core.v1.TolerationArgsDict] = [{"operator": "Exists"}]
"""Tolerations of daemons that must run on machines with any taint; the charts' own know only some."""

MELLANOX = "15b3"
"""PCI vendor of the InfiniBand devices."""

SHARES = 63
"""Pods that may have a machine's devices at once; the number in NVIDIA's documentation. Workers are alone."""


@cache
def charts() -> dict[str, dict[str, str]]:
    """Charts and images with their versions, as the table has them."""
    table: dict[str, dict[str, str]] = yaml.safe_load(_CHARTS.read_text(encoding="utf-8"))
    return table


@dataclass(frozen=True, kw_only=True)
class GpuStackArgs:
    """Inputs of `GpuStack`."""

    prefix: str
    """Name of the cluster in labels."""
    install: Literal["preinstalled", "operators"]
    rdma: bool
    """Whether any machine has InfiniBand devices."""
    rdma_resource: str
    """Resource by which pods ask for them, for example `rdma/ib`."""
    mig: bool
    """Whether any machine's GPUs are divided."""


class NicClusterPolicySpec(TypedDict):
    """What we ask NVIDIA's network operator for (mellanox.com/v1alpha1, NicClusterPolicy)."""

    ofedDriver: dict[str, Any]
    rdmaSharedDevicePlugin: dict[str, str]
    tolerations: list[k8s.core.v1.TolerationArgsDict]


class GpuStack(pulumi.ComponentResource):
    """NVIDIA's operators; or, where the machines' images have the drivers, only what these lack.

    Images with drivers come with a device plugin for GPUs, but with none for InfiniBand: a container sees those devices
    only if it is privileged, or if somebody offers them as a resource.
    """

    def __init__(self, name: str, args: GpuStackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:GpuStack", name, None, opts)
        self._name = name
        self._child = pulumi.ResourceOptions(parent=self)
        if args.install == "operators":
            self._create_gpu_operator(divided=args.mig)
            if args.rdma:
                self._create_network_operator(args)
        elif args.rdma:
            self._create_rdma_plugin(args)
        self.register_outputs({})

    def _create_gpu_operator(self, *, divided: bool) -> None:
        values: dict[str, Any] = {
            "driver": {"enabled": True, "rdma": {"enabled": True}},
            # Each profile is a resource of its own. Which ones a machine has, its label nvidia.com/mig.config says.
            **({"mig": {"strategy": "mixed"}} if divided else {}),
            "daemonsets": {"tolerations": _ALL},
            "node-feature-discovery": {"worker": {"tolerations": _ALL}},
        }
        self._release("gpu-operator", "gpu_operator", values)

    def _create_network_operator(self, args: GpuStackArgs) -> None:
        # The GPU operator brings the discovery of the machines' features along; two would fight.
        release = self._release("network-operator", "network_operator", {"nfd": {"enabled": False}})
        spec: NicClusterPolicySpec = {
            "ofedDriver": {**charts()["network_driver"], "upgradePolicy": {"autoUpgrade": False}},
            "rdmaSharedDevicePlugin": {**charts()["rdma_device_plugin"], "config": plugin_config(args.rdma_resource)},
            "tolerations": _ALL,
        }
        k8s.apiextensions.CustomResource(
            f"{self._name}-network-policy",
            api_version="mellanox.com/v1alpha1",
            kind="NicClusterPolicy",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="nic-cluster-policy"),
            spec=spec,
            opts=self._child.merge(pulumi.ResourceOptions(depends_on=[release])),
        )

    def _release(self, name: str, key: str, values: dict[str, Any]) -> k8s.helm.v3.Release:
        chart = charts()[key]
        return k8s.helm.v3.Release(
            f"{self._name}-{name}",
            name=name,
            namespace=name,
            create_namespace=True,
            chart=chart["chart"],
            version=chart["version"],
            repository_opts=k8s.helm.v3.RepositoryOptsArgs(repo=chart["repository"]),
            values=values,
            opts=self._child,
        )

    def _create_rdma_plugin(self, args: GpuStackArgs) -> None:
        config = plugin_config(args.rdma_resource)
        labels = recommended_labels(args.prefix, _PLUGIN)
        name = content_name(_PLUGIN, config)
        files = k8s.core.v1.ConfigMap(
            f"{self._name}-rdma-config",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=_NAMESPACE, labels=labels),
            data={"config.json": config},
            opts=self._child,
        )
        k8s.apps.v1.DaemonSet(
            f"{self._name}-rdma-plugin",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=_PLUGIN, namespace=_NAMESPACE, labels=labels),
            spec=k8s.apps.v1.DaemonSetSpecArgs(
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=_plugin_pod(name)
                ),
            ),
            opts=self._child.merge(pulumi.ResourceOptions(depends_on=[files])),
        )


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
    image = charts()["rdma_device_plugin"]
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
                image=f"{image['repository']}/{image['image']}:{image['version']}",
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
