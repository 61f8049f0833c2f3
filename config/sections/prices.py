"""`slurmstack:prices`: what the parts of a stack cost, from your own price list."""

from __future__ import annotations

import re
from typing import Annotated, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from config.base import Section, matching
from config.errors import unknown_name
from config.sections.machines import DiskType
from config.sections.storage import FilesystemType

DEFAULT_CLASS = "default"
"""What volumes without a storage class of their own are called in `storage`."""

CLOUD_STORAGE = (
    *(f"disk/{kind}" for kind in get_args(DiskType)),
    *(f"filesystem/{kind}" for kind in get_args(FilesystemType)),
)
"""Storage of a cloud whose machines the stack makes."""

_CURRENCY = re.compile(r"^[A-Z]{3}$")
_MACHINE = re.compile(r"^[a-z0-9-]+/[a-z0-9-]+(/preemptible)?$")
_STORAGE_CLASS = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_OTHER = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9 _.-]{0,28}[A-Za-z0-9])?$")


def _price(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is not a price: write a number without its currency, such as 28.5")  # noqa: TRY004 - pydantic's own type
    return value


def _storage(name: str) -> str:
    if name not in CLOUD_STORAGE and not _STORAGE_CLASS.fullmatch(name):
        what = "a kind of storage, nor the name of a storage class"
        raise ValueError(unknown_name(name, CLOUD_STORAGE, what=what).removeprefix(f"{name!r} "))
    return name


Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False), BeforeValidator(_price)]

MachineName = Annotated[
    str,
    matching(_MACHINE, "is no kind of machine: write platform/preset, or platform/preset/preemptible"),
    Field(json_schema_extra={"pattern": _MACHINE.pattern}),
]


class Prices(Section):
    """What the parts of the stack cost. Only `slurmstack cost` and previews read it; nothing in the cluster does."""

    currency: Annotated[
        str,
        matching(_CURRENCY, "is no currency: write its three capital letters, such as USD"),
        Field(json_schema_extra={"pattern": _CURRENCY.pattern}),
    ] = "USD"
    """Currency of all prices, by its three letters."""

    machines: dict[MachineName, Price] = Field(default_factory=dict)
    """An hour of one machine that the cloud makes, by `platform/preset`; `platform/preset/preemptible` for those of
    pools with `preemptible: true`. The boot disk is not in it."""

    pools: dict[str, Price] = Field(default_factory=dict)
    """An hour of one node of a pool of `worker_nodes`. Where the cloud makes the machines: in place of the price in
    `machines`, as for reserved ones."""

    storage: dict[Annotated[str, AfterValidator(_storage)], Price] = Field(default_factory=dict)
    """A month (730 hours) of one GiB, by the storage class, `default` for volumes that name none. Where the cloud makes
    the machines also by the kind: `disk/NETWORK_SSD`, `filesystem/NETWORK_SSD` and so on."""

    load_balancer: Price | None = None
    """An hour of one load balancer, its address included."""

    other: dict[
        Annotated[str, matching(_OTHER, "is no name of at most 30 letters, digits, blanks, '_', '.' and '-'")], Price
    ] = Field(default_factory=dict)
    """An hour of whatever else is paid for by the hour, by names of your own, for example `control plane`."""

    @property
    def are_given(self) -> bool:
        """Whether there is any price."""
        maps = (self.machines, self.pools, self.storage, self.other)
        return self.load_balancer is not None or any(maps)
