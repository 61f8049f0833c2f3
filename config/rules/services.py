"""What must hold for services and volumes, and for settings that would cut the cluster off or let a limit not hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from config.cluster import Sections
from config.errors import Found, unknown_name
from config.sections.accounting import Accounting
from config.sections.cloud import Cloud, NebiusCloud
from config.sections.monitoring import Monitoring
from config.sections.services import (
    CUDA_VERSIONS,
    NO_CUDA,
    Controller,
    Dashboard,
    Images,
    Login,
    NetworkPolicies,
    Rest,
)
from config.sections.slurm import KNOWN, JobSubmit, Partition, Slurm, as_text, folded
from config.sections.storage import Jail, Mount
from config.sections.workers import WorkerPool

_PROMETHEUS = "prometheus"
_NO_POLICIES = "has no effect: only network policies could enforce it, and network_policies.enabled is false"

OF_THE_WORKER = frozenset({"proctracktype", "taskplugin", "jobacctgathertype"})
"""Keys that each worker decides about by its machine, where it holds jobs to what they asked for."""


def settings(
    sections: Sections, slurm: Slurm, job_submit: JobSubmit | None, worker_nodes: Mapping[str, WorkerPool]
) -> Found:
    """Keys of slurm.conf that are not free. All others win over our defaults, and over sections that write the same."""
    written, where = folded(slurm.settings), "slurm.settings"
    confining = [f"worker_nodes.{name}" for name, pool in worker_nodes.items() if pool.confines]
    for key in slurm.settings:
        if key.lower() in OF_THE_WORKER and confining:
            message = "is up to workers that hold jobs to what they asked for; remove it, or set confinement: off in "
            yield f"{where}.{key}", message + ", ".join(confining)
    if "x11" in str(written.get("prologflags", "")).lower():
        message = "has X11, which has no effect: X11 is not forwarded (docs/first-jobs.md); leave it out"
        yield f"{where}.PrologFlags", message
    if job_submit is not None and job_submit.needs_script and "jobsubmitplugins" in written:
        yield f"{where}.JobSubmitPlugins", "is what the rules of job_submit need for themselves; remove one"
    enforced = str(written.get("accountingstorageenforce", "none")).lower()
    if enforced not in {"none", "no", "false"} and not sections.names("accounts"):
        yield f"{where}.AccountingStorageEnforce", f"is set, {_NOBODY}"


def plugins(sections: Sections) -> Found:
    """Plugins that Slurm does not have, or that are not for here. What else is wrong with settings hides none."""
    slurm = sections.written.get("slurm")
    settings = slurm.get("settings") if isinstance(slurm, Mapping) else None
    written = folded(settings) if isinstance(settings, Mapping) else {}
    for key, value in written.items():
        name, known = KNOWN["plugins"].get(key, ("", ""))
        for part in as_text(value).split(",") if name else ():
            kind = known.partition("/")[0]
            if f"{kind}/{part.strip().lower().removeprefix(f'{kind}/')}" not in known.split(","):
                yield f"slurm.settings.{name}", unknown_name(part, known.split(","), what="a plugin of Slurm's")
    records, place = as_text(written.get("jobcomptype")).lower(), as_text(written.get("jobcomploc"))
    if "mysql" in records or ("filetxt" in records and not place.strip('"').startswith("/var/spool/slurmctld/")):
        file = "use jobcomp/filetxt with a JobCompLoc in /var/spool/slurmctld, which alone slurmctld may write"
        yield "slurm.settings.JobCompType", f"is {records}: sacct has the records of jobs: leave it out, or {file}"
    if "cons_tres" not in (select := as_text(written.get("selecttype", "cons_tres")).lower()):
        whole = "for whole nodes set OverSubscribe: EXCLUSIVE in partitions.<name>.settings"
        yield (
            "slurm.settings.SelectType",
            f"is {select}: only select/cons_tres has dynamic nodes; leave it out; {whole}",
        )


_NOBODY = (
    "but no accounts are declared, so that nobody could run a job; declare them in slurmstack:accounts, or leave it out"
)


def accounting(sections: Sections, accounting: Accounting) -> Found:
    """Policy without accounting, accounting without policy, and a key of slurmdbd.conf that is not free."""
    if not accounting.enabled:
        for section in ("accounts", "qos"):
            if sections.names(section):
                message = "needs accounting, and accounting.enabled is false; set it to true, or remove this"
                yield section, message
    elif set(accounting.enforce or ()) - {"nojobs", "nosteps"} and not sections.names("accounts"):
        yield "accounting.enforce", f"is set, {_NOBODY}"
    external = accounting.database.external
    if "storageparameters" in folded(accounting.settings) and external is not None and external.tls is not None:
        message = "would take the place of accounting.database.external.tls; remove it"
        yield "accounting.settings.StorageParameters", message


def access(accounting: Accounting, partitions: Mapping[str, Partition]) -> Found:
    """Accounts that Slurm does not look at: who may be in a partition takes enforced associations."""
    if accounting.enforce is None or set(accounting.enforce) - {"nojobs", "nosteps"}:
        return
    for name, partition in partitions.items():
        for field in ("allow_accounts", "deny_accounts"):
            if getattr(partition, field):
                message = "has no effect, as accounting.enforce lacks associations; add it there, or remove this"
                yield f"partitions.{name}.{field}", message


def network(network_policies: NetworkPolicies, login: Login | None, rest: Rest | None) -> Found:
    """Ranges and rules that nothing would hold to."""
    if login is not None and login.source_ranges and login.service_type != "LoadBalancer":
        yield "login.source_ranges", "is only for service_type LoadBalancer"
    if network_policies.enabled:
        return
    if rest is not None and rest.source_ranges and rest.service_type != "LoadBalancer":
        yield "rest.source_ranges", _NO_POLICIES
    if "egress" in network_policies.model_fields_set:
        yield "network_policies.egress", _NO_POLICIES


def rest(rest: Rest, accounting: Accounting | None, dashboard: Dashboard | None) -> Found:
    """What the API needs, and the page, which has neither a certificate nor an address of its own."""
    if rest.enabled and accounting is not None and not accounting.enabled:
        # Measured with 24.11.5 and 26.05.5: the thread waits for itself in assoc_mgr_get_admin_level_locked.
        message = (
            "needs accounting.enabled: without accounting, Slurm stops for good when somebody cancels another's job "
            "through the API"
        )
        yield "rest.enabled", message
    if dashboard is not None and dashboard.enabled and not rest.enabled:
        message = "needs the REST API, behind whose TLS it is; set rest.enabled to true, or remove this"
        yield "dashboard.enabled", message


def monitoring(sections: Sections, monitoring: Monitoring, cloud: Cloud | None) -> Found:
    """Prometheus' StatefulSet and its pod have the names that a pool of its name would have."""
    if monitoring.install and _PROMETHEUS in sections.names("worker_nodes"):
        message = "is the name of Prometheus' own pods with monitoring.install; take another one"
        yield f"worker_nodes.{_PROMETHEUS}", message
    if monitoring.has_kube_state and monitoring.kube_state_image is None and cloud is not None and not cloud.is_local:
        message = "is required with kube_state on this cluster: only the local cluster builds an image by itself"
        yield "monitoring.kube_state_image", message


def images(images: Images, slurm: Slurm) -> Found:
    """What is in the jail's image."""
    if images.jail.cuda and slurm.version not in CUDA_VERSIONS:
        yield "images.jail.cuda", NO_CUDA.format(version=slurm.version)


def state(controller: Controller, cloud: Cloud) -> Found:
    """A volume that all machines may mount, of a class that the cluster chooses: most offer none."""
    chosen = controller.storage_class or controller.filesystem
    if controller.access_mode == "ReadWriteMany" and not chosen and not cloud.is_local:
        message = "is ReadWriteMany, which few default classes offer; set controller.storage_class"
        yield "controller.access_mode", message
    if controller.standby and controller.access_mode != "ReadWriteMany":
        message = "needs controller.access_mode: ReadWriteMany; where there is a volume already make another one"
        yield "controller.standby", f"{message} (docs/backups.md#another-volume)"
    if controller.standby and isinstance(cloud, NebiusCloud) and cloud.controller_nodes.max_size < 2:
        yield "cloud.controller_nodes.max_size", "is 1, and controller.standby is to be on another machine; set it to 2"


def mounts(mounts: Mapping[str, Mount], jail: Jail | None) -> Found:
    """Mounts at one path, and mounts inside other mounts, which would hide what is below them."""
    paths = {name: PurePosixPath(mount.path) for name, mount in mounts.items()}
    for name, path in paths.items():
        where = f"mounts.{name}.path"
        if jail is not None and jail.homes is not None and path == PurePosixPath("/home"):
            yield where, "/home is the path of jail.homes; remove one of the two"
        for other, parent in paths.items():
            if path == parent and name > other:
                yield where, f"{path} is the path of the mount {other!r} already"
            elif parent in path.parents:
                yield where, f"{path} is inside {parent}, the path of the mount {other!r}; mounts cannot be nested"


def filesystems(sections: Sections) -> Found:
    """File systems of a cloud, in a stack on a cluster that is already there: the data would lie elsewhere."""
    accounting, jail = sections.get("accounting"), sections.get("jail")
    volumes: dict[str, Any] = {
        "jail": jail,
        "jail.homes": jail and jail.homes,
        "controller": sections.get("controller"),
        "accounting.database": accounting and accounting.database,
        **{f"mounts.{name}": mount for name, mount in sections.get("mounts").items()},
    }
    for where, volume in volumes.items():
        if volume is not None and "filesystem" in volume.model_fields_set and volume.filesystem is not None:
            message = "is for clouds with file systems of their own; remove it (storage_class chooses the storage)"
            yield f"{where}.filesystem", message
