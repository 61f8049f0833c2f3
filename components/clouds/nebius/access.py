"""Service accounts, and the one thing that each of them may do: pull images, or write backups to their bucket."""

from __future__ import annotations

import re

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.resources import CloudScope
from config.sections.cloud import Backups

PULL_ROLE = "viewer"
"""Lets machines pull images. There is no narrower role for registries (docs.nebius.com, IAM, roles); it is granted for
the one registry only."""

# Of the cloud's own registries, as in `cr.eu-north1.nebius.cloud/e00example/slurm`.
_REGISTRY = re.compile(r"^cr\.[a-z0-9-]+\.nebius\.cloud/(?:registry-)?([a-z0-9-]+)(?:/|$)")

WRITE_ROLE = "storage.object-editor"
"""Reads, writes and deletes objects, but cannot change the bucket (docs.nebius.com, IAM, roles)."""

KEPT_DAYS = 30
"""Days that an object can still be had after it was deleted or overwritten, by mistake or by a thief of the key."""

UPLOAD_DAYS = 7
"""Days until the parts of an upload that never ended are thrown away."""


def _create_service_account(
    scope: CloudScope, suffix: str, description: str, *, role: str, resource: pulumi.Input[str]
) -> nebius.IamV1ServiceAccount:
    """A service account that has one role on one resource.

    Roles are given to groups only, so it comes with a group of its own in the project, instead of joining one of the
    tenant's groups whose roles reach everywhere.
    """
    name = scope.name(suffix)
    account = nebius.IamV1ServiceAccount(**scope.named(suffix), description=description)
    group = nebius.IamV1Group(**scope.named(suffix))
    nebius.IamV1GroupMembership(name, name=name, parent_id=group.id, member_id=account.id, opts=scope.options)
    nebius.IamV1AccessPermit(name, name=name, parent_id=group.id, resource_id=resource, role=role, opts=scope.options)
    return account


def create_node_account(scope: CloudScope, registry: str | None) -> nebius.IamV1ServiceAccount | None:
    """In whose name the machines pull images, where these are in a registry of the cloud; else nobody's.

    Whatever runs on a machine can act in this name, so it may do nothing but read that registry. Other registries need
    no permission of the cloud's, but perhaps a pull secret.
    """
    match = _REGISTRY.match(registry or "")
    if match is None:
        return None
    description = "Pulls container images to the machines"
    return _create_service_account(scope, "nodes", description, role=PULL_ROLE, resource=f"registry-{match.group(1)}")


def create_backups(scope: CloudScope, backups: Backups) -> dict[str, pulumi.Output[str]]:
    """Bucket, service account and key; what a backup program needs of them, by the names that the stack exports.

    The key's secret half is kept by MysteryBox and never comes into Pulumi's state.
    """
    bucket = _create_bucket(scope, backups.bucket or scope.name(f"backups-{scope.project.removeprefix('project-')}"))
    account = _create_service_account(scope, "backups", "Writes backups", role=WRITE_ROLE, resource=bucket.id)
    key = nebius.IamV2AccessKey(
        **scope.named("backups"),
        account={"service_account": {"id": account.id}},
        description="Writes backups",
        secret_delivery_mode="MYSTERY_BOX",  # noqa: S106  where the secret is put, not the secret
    )
    return {
        "backups_bucket": bucket.name,
        "backups_endpoint": bucket.status.domain_name,
        "backups_key_id": key.status.aws_access_key_id,
        "backups_secret": key.status.secret_reference_id,
    }


def _create_bucket(scope: CloudScope, name: str) -> nebius.StorageV1Bucket:
    """A bucket that keeps what was overwritten for a while. It is never deleted with backups in it."""
    rule: nebius.StorageV1BucketLifecycleConfigurationRuleArgsDict = {
        "id": "old-versions",
        "status": "ENABLED",
        "noncurrent_version_expiration": {"noncurrent_days": KEPT_DAYS},
        "abort_incomplete_multipart_upload": {"days_after_initiation": UPLOAD_DAYS},
    }
    return nebius.StorageV1Bucket(
        **{**scope.named("backups", scope.data_options()), "name": name},
        versioning_policy="ENABLED",
        lifecycle_configuration={"rules": [rule]},
    )
