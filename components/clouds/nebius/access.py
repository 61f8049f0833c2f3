"""Service accounts, and the one thing that each of them may do."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope

PULL_ROLE = "viewer"
"""Lets machines pull images. There is no narrower role for registries (docs.nebius.com, IAM, roles); it is granted for
the one registry only."""

_REGISTRY = re.compile(r"^cr\.[a-z0-9-]+\.nebius\.cloud/(?:registry-)?([a-z0-9-]+)(?:/|$)")


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A role on one resource."""

    role: str
    resource_id: pulumi.Input[str]


def create_service_account(
    scope: CloudScope, suffix: str, description: str, grant: Grant
) -> nebius.IamV1ServiceAccount:
    """A service account that may do one thing to one resource.

    Roles are given to groups only, so it comes with a group of its own in the project, instead of joining one of the
    tenant's groups whose roles reach everywhere.
    """
    name = scope.name(suffix)
    account = nebius.IamV1ServiceAccount(
        name,
        name=name,
        parent_id=scope.project,
        description=description,
        labels=scope.labels,
        opts=scope.options,
    )
    group = nebius.IamV1Group(name, name=name, parent_id=scope.project, labels=scope.labels, opts=scope.options)
    nebius.IamV1GroupMembership(name, name=name, parent_id=group.id, member_id=account.id, opts=scope.options)
    nebius.IamV1AccessPermit(
        name, name=name, parent_id=group.id, resource_id=grant.resource_id, role=grant.role, opts=scope.options
    )
    return account


def registry_id(registry: str | None) -> str | None:
    """Id of the cloud's own registry in an image prefix such as `cr.eu-north1.nebius.cloud/e00example/slurm`.

    None for other registries: those need no permission of the cloud's, but perhaps a pull secret.
    """
    match = _REGISTRY.match(registry or "")
    return f"registry-{match.group(1)}" if match else None


def create_node_account(scope: CloudScope, registry: str | None) -> nebius.IamV1ServiceAccount | None:
    """In whose name the machines pull images, where these are in a registry of the cloud; else nobody's.

    Whatever runs on a machine can act in this name, so it may do nothing but read that registry.
    """
    resource = registry_id(registry)
    if resource is None:
        return None
    description = "Pulls container images to the machines"
    return create_service_account(scope, "nodes", description, Grant(role=PULL_ROLE, resource_id=resource))
