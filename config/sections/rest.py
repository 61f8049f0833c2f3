"""`slurmstack:rest`: Slurm's REST API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from config.base import Cpu, Memory, Section, check_host
from config.names import LabelKey, SecretName
from config.sections.services import Cidr

HostName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$", max_length=253),
    AfterValidator(check_host),
]
"""A DNS name in small letters."""


class Issuer(Section):
    """An issuer of cert-manager, which must be in the Kubernetes cluster."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    """Name of the issuer."""
    kind: Literal["Issuer", "ClusterIssuer"] = "ClusterIssuer"
    """Whether it is one of the namespace or one of the whole cluster."""


class RestTls(Section):
    """The certificate of the REST API."""

    secret: SecretName | None = None
    """Secret of the type `kubernetes.io/tls` with your own certificate. Default: one that is made for the cluster; the
    stack exports its authority."""
    issuer: Issuer | None = None
    """Let cert-manager make and renew it."""
    names: tuple[HostName, ...] = ()
    """Host names (or IPv4 addresses) that the certificate is for, besides those inside the cluster."""

    @model_validator(mode="after")
    def _one_origin(self) -> RestTls:
        if self.secret is not None and self.issuer is not None:
            raise ValueError("has both secret and issuer: the certificate comes from one of them")
        return self


class Rest(Section):
    """slurmrestd behind TLS. Tokens come from `scontrol token`; without one nothing is answered."""

    enabled: bool = Field(default=False, strict=True)
    """Whether there is a REST API."""
    size: int = Field(default=1, ge=1, le=20, strict=True)
    """Pods behind the one Service."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Kubernetes Service. ClusterIP: closed to the outside."""
    node_port: int | None = Field(default=None, ge=1024, le=65535, strict=True)
    """Port on every Kubernetes node, with `service_type: NodePort`. Default: chosen by Kubernetes."""
    source_ranges: tuple[Cidr, ...] = ()
    """Address ranges that may connect, besides the pods of this cluster. Default: none with `ClusterIP`, all with the
    other types."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the Service, for the cloud's load balancer."""
    tls: RestTls = Field(default_factory=RestTls)
    """The certificate."""
    max_token_lifespan: int = Field(default=86_400, ge=60, le=315_360_000, strict=True)
    """Seconds for which a user's token may be good at most; a minute to ten years. Slurm refuses to make a longer one,
    with and without `enabled`. Not for root and `slurm`."""
    token_creation: bool = Field(default=True, strict=True)
    """Whether users make tokens for themselves; false: only root and `slurm` do. With and without `enabled`."""
    cpu: Cpu = "50m"
    """CPU that a pod asks Kubernetes for."""
    memory: Memory = "128Mi"
    """Memory that a pod asks Kubernetes for; at least 32Mi."""
