"""Whose a namespace is: nobody else's cluster is taken over, filled or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.errors import Failure


def refuse_foreign(namespace: Mapping[str, Any] | None) -> None:
    """Raise Failure if the namespace is there but holds no cluster of ours."""
    if namespace is None:
        return
    metadata = namespace["metadata"]
    if metadata.get("labels", {}).get("app.kubernetes.io/part-of") != "slurmstack":
        raise Failure(
            f"cluster.namespace: the namespace {metadata['name']!r} is there and belongs to something else",
            hint="name another one in slurmstack:cluster; it is made, filled and deleted with the cluster",
        )


def refuse_takeover(namespace: Mapping[str, Any] | None) -> None:
    """Raise Failure if the namespace is not one that this command made: foreign, or made by the Pulumi engine."""
    refuse_foreign(namespace)
    metadata = namespace["metadata"] if namespace is not None else {}
    managers = [str(entry.get("manager", "")) for entry in metadata.get("managedFields", [])]
    if any(manager.startswith("pulumi") for manager in managers):
        raise Failure(
            f"the cluster in namespace {metadata['name']!r} was made by `pulumi up`, "
            "which keeps its keys in Pulumi's state",
            hint="use `pulumi up` (or `slurmstack up --engine pulumi`) where the pulumi command is on PATH",
        )
