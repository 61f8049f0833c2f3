"""`slurmstack:cloud`: where the cluster runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from config.base import Section
from config.nebius.cloud import NebiusCloud


class ExistingCloud(Section):
    """A Kubernetes cluster that is already there. Without a context: the local cluster of this machine."""

    kind: Literal["existing"] = "existing"
    """`existing`: a cluster that somebody else made, named by a kubeconfig context."""
    context: str | None = Field(default=None, min_length=1)
    """Context in the kubeconfig. Left out: the local cluster that `slurmstack local up` starts."""
    kubeconfig: str | None = Field(default=None, min_length=1)
    """Path of the kubeconfig file that has the context. Default: `$KUBECONFIG`, else `~/.kube/config`."""
    cluster_domain: str = Field(default="cluster.local", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=128)
    """DNS domain of the Kubernetes cluster."""

    @property
    def is_local(self) -> bool:
        """Whether this is the local cluster of this machine."""
        return self.context is None


def _kind(value: Any) -> Any:
    return value.get("kind", "existing") if isinstance(value, Mapping) else getattr(value, "kind", None)


Cloud = Annotated[
    Annotated[ExistingCloud, Tag("existing")] | Annotated[NebiusCloud, Tag("nebius")], Discriminator(_kind)
]
"""One of the clouds, by `kind`."""

CLOUDS: Mapping[str, type[ExistingCloud | NebiusCloud]] = {"existing": ExistingCloud, "nebius": NebiusCloud}
"""The model of each `kind`."""
