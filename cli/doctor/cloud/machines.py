"""Whether the wanted machines exist in the project's region, and the file systems and GPU clusters named by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from cli.doctor.cloud.answers import Answer, Answers, LiveFilesystem, LivePlatform, Unanswered
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import FilesystemNeed, Needs, NodeNeed


def check_platforms(
    platforms: Answer[Mapping[str, LivePlatform]], config: ClusterConfig, needs: Needs
) -> Iterator[Finding]:
    """Whether each kind and size of machine is offered, and can be what the pool asks of it."""
    if isinstance(platforms, Unanswered):
        yield unchecked("machines", "platforms and presets", platforms)
        return
    wrong = [problem for node in needs.nodes for problem in _check_node(node, platforms, config)]
    yield from wrong
    if not wrong:
        kinds = sorted({f"{node.platform} {node.preset}" for node in needs.nodes})
        yield fine("machines", f"offered: {', '.join(kinds)}")


def _check_node(node: NodeNeed, platforms: Mapping[str, LivePlatform], config: ClusterConfig) -> Iterator[Finding]:
    check = "machines"
    platform = platforms.get(node.platform)
    if platform is None:
        message = f"{node.where}: this project has no platform {node.platform}; {_instead(node.platform, platforms)}"
        yield change(check, message)
        return
    preset = platform.presets.get(node.preset)
    if preset is None:
        message = (
            f"{node.where}: {node.platform} has no preset {node.preset}; {_instead(node.preset, platform.presets)}"
        )
        yield change(check, message)
        return
    live = (preset.vcpus, preset.memory_gib, preset.gpus)
    known = (node.size.vcpus, node.size.memory_gib, node.size.gpus)
    if live != known:
        yield warning(
            check,
            f"{node.where}: {node.preset} has {_sizes(live)}, but the workers are sized for {_sizes(known)} "
            "(config/nebius/platforms.yaml)",
        )
    pool = config.worker_nodes.get(node.pool or "")
    if pool is not None and pool.gpu_cluster is not None and not preset.fabric:
        message = f"{node.where}: machines of {node.preset} cannot be in a GPU cluster; remove gpu_cluster"
        yield change(check, message)
    if pool is not None and pool.preemptible and not platform.preemptible:
        message = f"{node.where}: {node.platform} is not offered preemptible; remove preemptible"
        yield change(check, message)


def check_filesystems(answers: Answers, needs: Needs, cloud: NebiusCloud) -> Iterator[Finding]:
    """Whether the file systems that the stack names by id are there, in the region, and large enough."""
    for need in needs.filesystems:
        if need.existing_id is not None:
            yield _check_filesystem(need, answers.filesystems[need.existing_id], cloud)


def _check_filesystem(need: FilesystemNeed, found: Answer[LiveFilesystem], cloud: NebiusCloud) -> Finding:
    subject = f"{need.existing_id} ({need.tag})"
    if isinstance(found, Unanswered):
        if found.missing:
            return change(
                "filesystems", f"there is no file system {subject}; correct its id, or remove it for a new one"
            )
        return unchecked("filesystems", subject, found)
    good = fine("filesystems", f"{subject}: {found.size_gib} GiB, {found.type}")
    return next(_filesystem_problems(need, found, cloud, subject), good)


def _filesystem_problems(
    need: FilesystemNeed, found: LiveFilesystem, cloud: NebiusCloud, subject: str
) -> Iterator[Finding]:
    check = "filesystems"
    if found.project != cloud.project_id:
        yield change(check, f"{subject} is in {found.project}, not in {cloud.project_id}; machines cannot mount it")
    if found.state not in {"READY", "UPDATING"}:
        yield change(check, f"{subject} is {found.state.lower()}; wait until it is ready")
    if found.size_gib < need.size_gib:
        sizes = f"has {found.size_gib} GiB, but {need.where} says {need.size_gib} GiB"
        yield change(check, f"{subject} {sizes}; make it larger, or correct {need.where}")
    if found.type != need.type:
        yield warning(check, f"{subject} is of type {found.type}, not {need.type} as the stack file says")


def check_gpu_clusters(answers: Answers, needs: Needs, cloud: NebiusCloud) -> Iterator[Finding]:
    """Whether the GPU clusters that the stack names by id are there."""
    check = "fabric"
    for cluster_id in needs.gpu_clusters:
        found = answers.gpu_clusters[cluster_id]
        if isinstance(found, Unanswered):
            if found.missing:
                yield change(check, f"there is no GPU cluster {cluster_id}; correct gpu_cluster.id")
            else:
                yield unchecked(check, cluster_id, found)
        elif found.project != cloud.project_id:
            message = f"{cluster_id} is in {found.project}, not in {cloud.project_id}; machines cannot join it"
            yield change(check, message)


def _instead(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name, known, n=1)
    offered = ", ".join(sorted(known)) or "none"
    return f"did you mean {near[0]}? (offered: {offered})" if near else f"offered: {offered}"


def _sizes(size: tuple[int, int, int]) -> str:
    return f"{size[0]} vCPUs, {size[1]} GiB and {size[2]} GPUs"
