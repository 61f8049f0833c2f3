"""What a stack takes of a Nebius project, against the quotas that the stack file states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from config.base import GIBIBYTE, parse_bytes
from config.errors import Problem, unknown_name
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import FilesystemNeed, NodeNeed
from config.nebius.platforms import Catalogue


def quota_problems(
    cloud: NebiusCloud, nodes: Sequence[NodeNeed], filesystems: Iterable[FilesystemNeed], catalogue: Catalogue
) -> Iterator[Problem]:
    """What is more than a quota that the stack states."""
    quotas = cloud.quotas
    machines = {node.where.rpartition(".")[2]: node for node in nodes}
    for platform, most in quotas.gpus.items():
        where = f"cloud.quotas.gpus.{platform}"
        if platform not in catalogue.platforms:
            yield Problem(where, unknown_name(platform, catalogue.platforms, what="a platform"))
            continue
        counted = {name: node for name, node in machines.items() if node.platform == platform and not node.reserved}
        gpus = {name: node.at_once * node.size.gpus for name, node in counted.items()}
        yield from _over(where, gpus, most, what="GPUs")
    there = {name: node.at_once for name, node in machines.items()}
    yield from _over("cloud.quotas.nodes", there, quotas.nodes, what="machines")
    vcpus = {name: node.at_once * node.size.vcpus for name, node in machines.items() if not node.size.gpus}
    yield from _over("cloud.quotas.vcpus", vcpus, quotas.vcpus, what="virtual CPUs")
    disks = {name: node.at_once * node.disk_gib for name, node in machines.items()}
    yield from _over("cloud.quotas.disk_size", disks, _most_gib(quotas.disk_size), what="GiB of boot disks")
    sizes = {item.section: item.size_gib for item in filesystems if item.existing_id is None}
    most_size = _most_gib(quotas.filesystem_size)
    yield from _over("cloud.quotas.filesystem_size", sizes, most_size, what="GiB of file systems")


def _over(where: str, needed: Mapping[str, int], most: int | None, *, what: str) -> Iterator[Problem]:
    total = sum(needed.values())
    if most is not None and total > most:
        parts = ", ".join(f"{name} {amount:,}" for name, amount in needed.items() if amount)
        message = f"the stack takes {total:,} {what} ({parts}) and the quota is {most:,}; ask for more, or take less"
        yield Problem(where, message)


def _most_gib(size: str | None) -> int | None:
    return None if size is None else parse_bytes(size) // GIBIBYTE
