"""Whether the project is where the stack file says, and has its kinds of machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from nebius.api.nebius.compute.v1 import Platform
from nebius.api.nebius.iam.v2 import Project

from cli.doctor.cloud.answers import Answer, Unanswered
from cli.doctor.cloud.report import Finding, change, fine, unchecked
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import Needs, NodeNeed


def check_project(project: Project, cloud: NebiusCloud) -> Finding:
    """Whether the project is usable and in the region of the stack."""
    region, state = project.spec.region, project.status.project_state.name
    told = f"{cloud.project_id} ({project.metadata.name}) in {region}, of {project.metadata.parent_id}"
    if region != cloud.region:
        return change("project", f"{told}: cloud.region is {cloud.region}; correct one of them")
    if state not in {"ACTIVE", "STATE_UNSPECIFIED"}:
        return change("project", f"{told}: it is {state.lower()}; wait until it is active, or use another project")
    return fine("project", told)


def check_machines(platforms: Answer[tuple[Platform, ...]], config: ClusterConfig, needs: Needs) -> Iterator[Finding]:
    """Whether each kind and size of machine is offered there."""
    if isinstance(platforms, Unanswered):
        yield unchecked("machines", "platforms and presets", platforms)
        return
    by_name = {platform.metadata.name: platform for platform in platforms}
    problems = [problem for node in needs.nodes if (problem := _problem(node, by_name, config))]
    yield from (change("machines", problem) for problem in problems)
    if not problems:
        kinds = sorted({f"{node.platform} {node.preset}" for node in needs.nodes})
        yield fine("machines", f"offered: {', '.join(kinds)}")


def _problem(node: NodeNeed, platforms: dict[str, Platform], config: ClusterConfig) -> str:
    """What is wrong with the machines of one kind; empty: nothing."""
    platform = platforms.get(node.platform)
    if platform is None:
        return f"{node.where}: this project has no platform {node.platform}; {_instead(node.platform, platforms)}"
    presets = {preset.name: preset.resources for preset in platform.spec.presets}
    live = presets.get(node.preset)
    if live is None:
        return f"{node.where}: {node.platform} has no preset {node.preset}; {_instead(node.preset, presets)}"
    size = node.size
    if (live.vcpu_count, live.memory_gibibytes, live.gpu_count) != (size.vcpus, size.memory_gib, size.gpus):
        return (
            f"{node.where}: {node.preset} has {live.vcpu_count} vCPUs, {live.memory_gibibytes} GiB and "
            f"{live.gpu_count} GPUs, and config/nebius/platforms.yaml says otherwise; correct it there"
        )
    pool = config.worker_nodes.get(node.pool or "")
    if pool is not None and pool.preemptible and not platform.status.allowed_for_preemptibles:
        return f"{node.where}: {node.platform} is not offered preemptible; remove preemptible"
    return ""


def _instead(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    offered = ", ".join(sorted(known)) or "none"
    return f"did you mean {near[0]}? (offered: {offered})" if near else f"offered: {offered}"
