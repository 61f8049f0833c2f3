"""`resources.gpus` of a pool: GPUs of one node, and the parts of them that Slurm gives out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from config.base import Section, matching

MAX_GPUS = 64
"""GPUs of one node at most."""

SLICES = 7
"""Parts of its cores that a GPU can be divided into (NVIDIA's MIG); the first figure of a profile counts them."""

_TYPE = re.compile(r"^[a-z][a-z0-9_.-]*$")
_PROFILE = re.compile(r"^([1-7])g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)?)?$")

GpuType = Annotated[
    str,
    matching(_TYPE, "is not a type of GPU: small letters, digits, '_', '.' and '-', beginning with a letter"),
    Field(max_length=64),
]
"""A name for `--gpus=TYPE:N`, for example `h100`."""

MigProfile = Annotated[
    str, matching(_PROFILE, "is not a MIG profile such as 1g.10gb or 1g.10gb+me; `nvidia-smi mig -lgip` lists them")
]
"""What a part of a GPU has: sevenths of its cores, and memory."""


def has_room(instances: Mapping[int, int], count: int) -> bool:
    """Whether `count` GPUs can be divided so: sevenths of the cores -> instances.

    As of the GPUs that are divided into sevenths (A100 to B200): a GPU has 8 parts of memory, too, and an instance of
    3g or 4g takes 4 of them. So a GPU has 4g once, beside 3g or smaller ones; 3g twice, and nothing else then; 2g three
    times. Smaller GPUs (A30) have room for less.
    """
    halves = instances.get(4, 0)
    empty = count - halves - sum(number for size, number in instances.items() if size > 4)
    beside = min(halves, instances.get(3, 0))
    left = instances.get(3, 0) - beside
    if empty < 0 or left > 2 * empty:
        return False
    # One for each before any has two, which are full.
    pairs = max(0, left - empty)
    single = left - 2 * pairs
    empty -= pairs + single
    halves -= beside
    twos = instances.get(2, 0)
    return twos <= halves + 2 * single + 3 * empty and (
        instances.get(1, 0) <= 3 * halves + 4 * single + SLICES * empty - 2 * twos
    )


def dotted(profile: str) -> str:
    """A profile's name as the device plugin writes it: a plus is allowed neither there nor in `--gpus`."""
    return profile.replace("+", ".")


def _count_from_preset(schema: dict[str, Any]) -> None:
    """Where the cloud makes the machines, `gpus` may leave out how many there are."""
    schema.pop("required", None)


class Gpus(Section):
    """GPUs of one node. A number alone is their `count`."""

    model_config = ConfigDict(json_schema_extra=_count_from_preset)

    count: int = Field(ge=0, le=MAX_GPUS, strict=True)
    """GPUs of one node, divided or not (`Gres=gpu:N`, Kubernetes resource `nvidia.com/gpu` or `amd.com/gpu`). Default
    where the cloud makes the machines: those of the preset."""

    vendor: Literal["nvidia", "amd"] = "nvidia"
    """Whose they are. Those of AMD have no health checks."""

    type: GpuType | None = None
    """Their type in Slurm, for `--gpus=h100:1`; of NVIDIA's a part of the name that the driver gives. Default: what the
    platform's name tells, where the cloud makes the machines, else none."""

    mig: dict[MigProfile, Annotated[int, Field(ge=1, le=SLICES * MAX_GPUS, strict=True)]] = Field(default_factory=dict)
    """Profile -> instances of one node, where NVIDIA's GPUs are divided (MIG): `{1g.10gb: 56}`. All of them have to be,
    before the worker starts, and the device plugin to offer each profile by its name (its strategy `mixed`)."""

    shard: int | None = Field(default=None, ge=1, le=4096, strict=True)
    """Shares of the node's GPUs for jobs that ask for a part of one (`--gres=shard:1`), the same number for each GPU.
    Slurm counts them; nothing keeps the jobs of a GPU apart. Default: no shares."""

    job_files: bool = Field(default=False, strict=True)
    """Whether the files that say which job has which GPU of NVIDIA's lie on the machine. An exporter of
    its figures can read them in /run/slurmstack/gpu-jobs. Not with `security: baseline`; takes `health`, which is on by
    default."""

    @model_validator(mode="after")
    def _go_together(self) -> Gpus:
        wanted = [key for key in ("type", "mig", "shard", "job_files") if getattr(self, key)]
        if not self.count and wanted:
            raise ValueError(f"has {' and '.join(wanted)}, and a count of 0; say how many GPUs a node has")
        if self.job_files and self.vendor != "nvidia":
            raise ValueError(
                f"has job_files, which are for exporters of NVIDIA's figures, and vendor: {self.vendor}; remove one of "
                "them"
            )
        if self.mig:
            self._check_mig()
        if self.shard is not None and self.shard % self.count:
            raise ValueError(
                f"has shard: {self.shard}, which {self.count} GPUs cannot share evenly; take a multiple of {self.count}"
            )
        return self

    def _check_mig(self) -> None:
        if self.vendor != "nvidia":
            raise ValueError(f"has mig, which only NVIDIA's GPUs know, and vendor: {self.vendor}; remove one of them")
        if self.shard is not None:
            raise ValueError(
                "has mig and shard; both divide the same GPUs. Keep mig for parts that are held apart, or shard"
            )
        if self.type is not None:
            raise ValueError("has mig and type; the profiles are the types (--gpus=1g.10gb:1). Remove type")
        asked = sum(int(profile[0]) * instances for profile, instances in self.mig.items())
        if asked > SLICES * self.count:
            raise ValueError(
                f"has mig with {asked} sevenths of a GPU's cores, and {self.count} GPUs have {SLICES * self.count}; "
                "take fewer instances, or raise count"
            )
        sizes = {size: sum(n for profile, n in self.mig.items() if int(profile[0]) == size) for size in range(1, 8)}
        if not has_room(sizes, self.count):
            raise ValueError(
                f"has mig that {self.count} GPUs have no room for: of one GPU there is at most one instance of 4g or "
                "more, two of 3g (and nothing else then) or three of 2g (`nvidia-smi mig -lgipp`); take fewer "
                "instances, or raise count"
            )


def _counted(given: object) -> object:
    """A number alone is how many there are."""
    if given is None or isinstance(given, Mapping | Gpus):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError("is neither a number of GPUs nor a map with their count")  # noqa: TRY004 - pydantic's own type
    if not 0 <= given <= MAX_GPUS:
        raise ValueError(f"is no number of GPUs of one node: 0 to {MAX_GPUS}")
    return {"count": given}


def _number_or_map(schema: dict[str, Any]) -> None:
    described = schema.pop("$ref", None)
    if described is not None:
        schema["anyOf"] = [{"type": "integer", "minimum": 0, "maximum": MAX_GPUS}, {"$ref": described}]
    schema["default"] = 0


GpusOfNode = Annotated[Gpus, BeforeValidator(_counted), Field(json_schema_extra=_number_or_map)]
"""A number of GPUs, or a map that says more of them."""
