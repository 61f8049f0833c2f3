"""What all components of one cluster know: where its objects live, how they are labelled, and when they go away."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources
from config.cluster import ClusterConfig
from config.sections.services import ImageRole
from slurm.images import DEFAULT_REGISTRY, image_reference, image_tags
from slurm.names import ACCOUNTING, CONTROLLER, DATABASE, ELASTIC, LOGIN, NODES_SERVICE, RELEASE_ANNOTATION

LOST_AFTER = 30
"""Seconds until pods of the control plane are to leave a machine that is not ready: after Kubernetes' own 40 to 50, in
which a machine may be silent. A pod of a StatefulSet starts elsewhere only when its machine is proven dead."""

FIRST = frozenset({CONTROLLER, ACCOUNTING, DATABASE, ELASTIC, LOGIN})
"""Components without which nobody works: their pods come first where there is no room for all."""


def selector_labels(cluster: str, component: str) -> dict[str, str]:
    """The labels that select the pods of one component of one cluster."""
    return {
        "app.kubernetes.io/name": "slurm",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/component": component,
    }


def recommended_labels(cluster: str, component: str) -> dict[str, str]:
    """The labels that every object carries."""
    return selector_labels(cluster, component) | {"app.kubernetes.io/part-of": "slurmstack"}


DNS_OPTIONS = {"timeout": "1", "attempts": "2"}
"""24.11 asks for the name of each peer's address before it listens to it. A DNS server of the site that is silent, not
one that refuses, then held slurmctld up for 10 s at each connection: it answered nobody (tried)."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The cluster that is made: its configuration, where its objects live, and what they are labelled with."""

    config: ClusterConfig
    namespace: pulumi.Input[str]
    """Its name as an output of the Namespace, so that each object depends on it."""
    cloud: CloudResources
    root: pulumi.ComponentResource
    """The cluster itself: parent of static volumes, which are in no namespace and so do not go away with it."""
    first_class: pulumi.Input[str] | None = None
    """PriorityClass of the pods of `FIRST`."""
    tried: pulumi.Resource | None = None
    """The job that tries the control plane's images."""

    @property
    def name(self) -> str:
        """Name of the namespace, which is also the name of the cluster in labels."""
        return self.config.cluster.namespace

    @property
    def tags(self) -> Mapping[str, str]:
        """Of each role's image, where no digest is given."""
        return image_tags(self.config.slurm.version, self.config.images)

    def after_trial(self, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        """Options of what gets its pods only when the images have been tried."""
        return opts if self.tried is None else opts.merge(pulumi.ResourceOptions(depends_on=[self.tried]))

    def labels(self, component: str, **more: str) -> dict[str, str]:
        """The labels that Kubernetes recommends, for one component of this cluster."""
        return self.selector(component, **more) | recommended_labels(self.name, component)

    def selector(self, component: str, **more: str) -> dict[str, str]:
        """The labels that select a component's pods. They can never change: a StatefulSet's selector is immutable."""
        return selector_labels(self.name, component) | {f"slurmstack/{key}": value for key, value in more.items()}

    def label_selector(self, component: str, **more: str) -> k8s.meta.v1.LabelSelectorArgs:
        """The same as other objects have it."""
        return k8s.meta.v1.LabelSelectorArgs(match_labels=self.selector(component, **more))

    def metadata(self, name: pulumi.Input[str], component: str, **more: str) -> k8s.meta.v1.ObjectMetaArgs:
        """Name, namespace and labels of an object."""
        return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=self.namespace, labels=self.labels(component, **more))

    def metadata_of_slurm(self, name: str, component: str) -> k8s.meta.v1.ObjectMetaArgs:
        """The same of pods with Slurm's daemons, whose release an update must be able to tell."""
        metadata = self.metadata(name, component)
        release = self.config.slurm.version
        metadata.annotations = {RELEASE_ANNOTATION: release} if "controller" in self.config.images.digests else None
        return metadata

    def image(self, role: ImageRole) -> str:
        """Reference of the image of one role."""
        images = self.config.images
        registry, digest = images.registry or DEFAULT_REGISTRY, images.digests.get(role)
        return image_reference(role, registry=registry, tag=self.tags[role], digest=digest)

    def priority_of(self, component: str) -> pulumi.Input[str] | None:
        """PriorityClass of a component's pods, where they name none themselves."""
        return self.config.cluster.priority_class or (self.first_class if component in FIRST else None)

    @property
    def pull_secrets(self) -> list[k8s.core.v1.LocalObjectReferenceArgs] | None:
        """The pull secret as a pod has it."""
        secret = self.config.images.pull_secret
        return [k8s.core.v1.LocalObjectReferenceArgs(name=secret)] if secret else None

    @property
    def node_dns(self) -> k8s.core.v1.PodDNSConfigArgs:
        """Lets a bare node name such as `default-0` resolve in a pod."""
        return k8s.core.v1.PodDNSConfigArgs(
            searches=[f"{NODES_SERVICE}.{self.name}.svc.{self.config.cloud.cluster_domain}"]
        )

    @property
    def daemon_dns(self) -> k8s.core.v1.PodDNSConfigArgs:
        """The same for slurmctld and slurmdbd, which wait for DNS less long. Jobs and users keep the usual 10 s."""
        options = [k8s.core.v1.PodDNSConfigOptionArgs(name=name, value=value) for name, value in DNS_OPTIONS.items()]
        return k8s.core.v1.PodDNSConfigArgs(searches=self.node_dns.searches, options=options)


def apart(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions | None:
    """Options of a component with children that have to be deleted by themselves: children inherit `deleted_with`.

    Those that do go away with the namespace get it from `children_of`.
    """
    own = copy.copy(opts)
    if own is not None:
        own.deleted_with = None
    return own


def children_of(component: pulumi.ComponentResource, opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options of those children of a component that is `apart` which go away with whatever the others go away with."""
    return pulumi.ResourceOptions(parent=component, deleted_with=opts.deleted_with if opts else None)


STARTING = "30m"
"""For an update to wait until a workload is ready. Its image is pulled first, and on a slow line that takes longer than
the provider's own ten minutes."""

FILLING = "4h"
"""For the jail to be filled, and for what waits for that. Network file systems write its 30,000 files slowly."""


def waits(limit: str) -> pulumi.ResourceOptions:
    """Options of an object that an update waits for, so long at most: `30m`."""
    return pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit))
