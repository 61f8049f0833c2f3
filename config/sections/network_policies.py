"""`slurmstack:network_policies`: who may connect to what."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from config.base import Section
from config.servers import address_range

INTERNET: Final = "internet"


def _target(value: str) -> str:
    if value == INTERNET:
        return value
    try:
        return address_range(value)
    except ValueError as error:
        raise ValueError(
            f"is neither {INTERNET!r} nor an address range such as 10.3.0.0/24 or 10.3.0.7/32: {error}"
        ) from None


class Egress(Section):
    """Something outside that login nodes and jobs may connect to."""

    to: Annotated[str, AfterValidator(_target)]
    """An address range such as `10.3.0.0/24`, or `internet`: all public addresses. Where clouds hand out credentials to
    their machines (169.254.169.254 and the like) stays closed, unless exactly that address is the range."""
    ports: tuple[Annotated[int, Field(ge=1, le=65535, strict=True)], ...] = ()
    """Ports. Default: all, of all protocols."""
    protocol: Literal["TCP", "UDP"] = "TCP"
    """Protocol of the ports."""

    @model_validator(mode="after")
    def _protocol_of_ports(self) -> Egress:
        if "protocol" in self.model_fields_set and not self.ports:
            raise ValueError("has a protocol but no ports; list the ports, or remove the protocol to allow all")
        return self


class NetworkPolicies(Section):
    """Who may connect to what: pods of the namespace to each other, and login nodes and jobs to what is outside."""

    enabled: bool = Field(default=True, strict=True)
    """Whether NetworkPolicy objects are made. They have effect only where the cluster's network enforces them."""

    egress: tuple[Egress, ...] = (Egress(to=INTERNET),)
    """What login nodes and jobs may connect to outside, besides DNS. Default: the Internet, and so no private address
    of machines, kubelets and Kubernetes' API. A list of your own replaces it; `[]` closes everything."""
