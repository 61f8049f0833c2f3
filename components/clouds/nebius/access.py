"""The service account of the machines, and the one thing that it may do: pull images."""

from __future__ import annotations

import re

import pulumi_nebius as nebius

from components.clouds.nebius.resources import CloudScope

PULL_ROLE = "viewer"
"""Lets machines pull images. There is no narrower role for registries (docs.nebius.com, IAM, roles); it is granted for
the one registry only."""

# Of the cloud's own registries, as in `cr.eu-north1.nebius.cloud/e00example/slurm`.
_REGISTRY = re.compile(r"^cr\.[a-z0-9-]+\.nebius\.cloud/(?:registry-)?([a-z0-9-]+)(?:/|$)")


def create_node_account(scope: CloudScope, registry: str | None) -> nebius.IamV1ServiceAccount | None:
    """In whose name the machines pull images, where these are in a registry of the cloud; else nobody's.

    Whatever runs on a machine can act in this name, so it may do nothing but read that registry. Other registries need
    no permission of the cloud's, but perhaps a pull secret. Roles are given to groups only, so it comes with a group of
    its own in the project, instead of joining one of the tenant's groups whose roles reach everywhere.
    """
    match = _REGISTRY.match(registry or "")
    if match is None:
        return None
    name = scope.name("nodes")
    account = nebius.IamV1ServiceAccount(**scope.named("nodes"), description="Pulls container images to the machines")
    group = nebius.IamV1Group(**scope.named("nodes"))
    nebius.IamV1GroupMembership(name, name=name, parent_id=group.id, member_id=account.id, opts=scope.options)
    nebius.IamV1AccessPermit(
        name,
        name=name,
        parent_id=group.id,
        resource_id=f"registry-{match.group(1)}",
        role=PULL_ROLE,
        opts=scope.options,
    )
    return account
