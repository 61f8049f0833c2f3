"""Who asks, and whether the project, its region and the versions there are what the stack file says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cli.doctor.cloud.answers import Answer, Answers, Identity, Image, KubernetesVersion, Project, Unanswered
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.platforms import nebius_catalogue


def check_credentials(identity: Answer[Identity]) -> Finding:
    """Whether the cloud knows us."""
    check = "credentials"
    if isinstance(identity, Unanswered):
        if identity.refused:
            return change(check, f"{identity.reason}; get a new token, or choose another profile or credentials file")
        return unchecked(check, "who asks", identity)
    if identity.anonymous:
        return change(check, "the cloud takes us for nobody; get a token, or choose a profile or a credentials file")
    if not identity.active:
        return change(check, f"{identity.name} is not active; have it activated, or use other credentials")
    return fine(check, identity.name)


def check_project(project: Answer[Project], cloud: NebiusCloud) -> Finding:
    """Whether the project is there, usable and in the region of the stack."""
    if isinstance(project, Unanswered):
        if project.missing:
            return change("project", f"there is no project {cloud.project_id}; correct cloud.project_id")
        return unchecked("project", cloud.project_id, project)
    told = f"{cloud.project_id} ({project.name})" if project.name else cloud.project_id
    good = fine("project", f"{told} in {project.region}, of {project.tenant}")
    return next(_project_problems(project, cloud, told), good)


def _project_problems(project: Project, cloud: NebiusCloud, told: str) -> Iterator[Finding]:
    check = "project"
    if project.region and project.region != cloud.region:
        yield change(check, f"{told} is in {project.region}, but cloud.region is {cloud.region}; correct one of them")
    if project.state not in {"ACTIVE", "STATE_UNSPECIFIED"}:
        yield change(check, f"{told} is {project.state.lower()}; wait until it is active, or use another project")
    if not project.region:
        yield warning(check, f"{told}: the service does not say its region")


def check_kubernetes(versions: Answer[tuple[KubernetesVersion, ...]], cloud: NebiusCloud) -> Finding:
    """Whether new clusters can have the version."""
    check = "kubernetes"
    wanted = cloud.kubernetes.version
    if isinstance(versions, Unanswered):
        return unchecked(check, f"version {wanted}", versions)
    offered = {version.version: version for version in versions}
    found = offered.get(wanted)
    if found is None:
        named = ", ".join(sorted(offered)) or "none"
        message = f"version {wanted} is not offered; set cloud.kubernetes.version to one of these: {named}"
        return change(check, message)
    if found.restricted:
        return warning(check, f"version {wanted} is offered to some tenants only")
    if found.deprecated:
        return warning(check, f"version {wanted} is deprecated; a newer one will be needed soon")
    return fine(check, f"version {wanted} is offered")


def check_drivers(answers: Answers, config: ClusterConfig, cloud: NebiusCloud) -> Iterator[Finding]:
    """Whether there is a system image with the GPU drivers for the Kubernetes version, by platform."""
    if cloud.gpu_stack != "preinstalled":
        return
    for platform, wanted in wanted_drivers(config, cloud).items():
        yield _check_images(answers.images[platform], cloud.kubernetes.version, platform, wanted)


def wanted_drivers(config: ClusterConfig, cloud: NebiusCloud) -> Mapping[str, set[str]]:
    """Driver presets of the GPU pools, by platform. Without a word in the pool: the newest of our table."""
    default = nebius_catalogue().drivers.get(cloud.kubernetes.version, ())
    wanted: dict[str, set[str]] = {}
    for pool in config.worker_nodes.values():
        if pool.resources.gpus.count and pool.platform:
            newest = default[-1] if default else ""
            wanted.setdefault(pool.platform, set()).add(pool.drivers_preset or newest)
    return wanted


def _check_images(images: Answer[tuple[Image, ...]], version: str, platform: str, wanted: set[str]) -> Finding:
    check = "drivers"
    subject = f"{platform} with Kubernetes {version}"
    if isinstance(images, Unanswered):
        return unchecked(check, subject, images)
    fitting = [image for image in images if _minor(image.version) == version and platform in image.platforms]
    offered = sorted({image.drivers for image in fitting if image.drivers})
    named = ", ".join(offered) or "none"
    absent = sorted(wanted - set(offered) - {""})
    if absent:
        message = (
            f"{subject}: there is no image with {' or '.join(absent)}; drivers_preset can be one of these: {named}"
            if offered
            else f"{subject}: there is no image with GPU drivers; set cloud.gpu_stack to operators, "
            "or another cloud.kubernetes.version"
        )
        return change(check, message)
    if "" in wanted:
        message = f"{subject}: our table knows no drivers for it; set drivers_preset to one of these: {named}"
        return change(check, message)
    return fine(check, f"{subject}: {', '.join(sorted(wanted))}")


def _minor(version: str) -> str:
    """`1.36` of `1.36-nebius-node.75` or `1.36.2`."""
    return ".".join(version.partition("-")[0].removeprefix("v").split(".")[:2])
