"""A bucket for backups, and a key that opens only this one."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.access import Grant, create_service_account
from components.clouds.nebius.scope import CloudScope
from config.nebius.cloud import Backups

WRITE_ROLE = "storage.object-editor"
"""Reads, writes and deletes objects, but cannot change the bucket (docs.nebius.com, IAM, roles)."""

KEPT_DAYS = 30
"""Days that an object can still be had after it was deleted or overwritten, by mistake or by a thief of the key."""

UPLOAD_DAYS = 7
"""Days until the parts of an upload that never ended are thrown away."""


@dataclass(frozen=True, kw_only=True)
class BackupBucket:
    """What a backup program needs. The key's secret half is kept by MysteryBox and never comes into Pulumi's state."""

    bucket: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    """Host that speaks S3."""
    access_key_id: pulumi.Output[str]
    secret_reference: pulumi.Output[str]
    """Id of the MysteryBox secret with the key's secret half."""


def create_backups(scope: CloudScope, backups: Backups) -> BackupBucket:
    """Bucket, service account and key."""
    bucket = _create_bucket(scope, backups.bucket or scope.name(f"backups-{scope.project.removeprefix('project-')}"))
    account = create_service_account(scope, "backups", "Writes backups", Grant(role=WRITE_ROLE, resource_id=bucket.id))
    key = nebius.IamV2AccessKey(
        scope.name("backups"),
        name=scope.name("backups"),
        parent_id=scope.project,
        account={"service_account": {"id": account.id}},
        description="Writes backups",
        secret_delivery_mode="MYSTERY_BOX",  # noqa: S106  where the secret is put, not the secret
        labels=scope.labels,
        opts=scope.options,
    )
    return BackupBucket(
        bucket=bucket.name,
        endpoint=bucket.status.domain_name,
        access_key_id=key.status.aws_access_key_id,
        secret_reference=key.status.secret_reference_id,
    )


def _create_bucket(scope: CloudScope, name: str) -> nebius.StorageV1Bucket:
    """A bucket that keeps what was overwritten for a while. It is never deleted with backups in it."""
    rule: nebius.StorageV1BucketLifecycleConfigurationRuleArgsDict = {
        "id": "old-versions",
        "status": "ENABLED",
        "noncurrent_version_expiration": {"noncurrent_days": KEPT_DAYS},
        "abort_incomplete_multipart_upload": {"days_after_initiation": UPLOAD_DAYS},
    }
    return nebius.StorageV1Bucket(
        scope.name("backups"),
        name=name,
        parent_id=scope.project,
        versioning_policy="ENABLED",
        lifecycle_configuration={"rules": [rule]},
        labels=scope.labels,
        opts=scope.data_options(),
    )
