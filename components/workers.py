"""Worker pools: Slurm's compute nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.configuration import Configuration
from components.elastic_admission import digest_of, hold_to_template
from components.health import Health
from components.jail import Mount, container_mounts, mount_volumes, mounts_env
from components.kit import pods, volumes, workloads
from components.kit.context import Scope, apart
from components.kit.volumes import JailVolume
from components.secrets import Secrets
from components.worker_ssh import PUBLIC_KEY_MOUNT, sshd, sshd_volumes
from config.base import parse_cpus
from config.rules.services import OF_THE_WORKER
from config.sections.machines import Gpus
from config.sections.slurm import folded
from config.sections.workers import WorkerPool as WorkerPoolConfig
from slurm.elastic import mark, settings
from slurm.health import SETTINGS_DIR
from slurm.names import (
    ELASTIC_SETTINGS,
    ELASTIC_TEMPLATE,
    JAIL_DIR,
    JOB_METRICS_PORT,
    MAX_UNAVAILABLE,
    SLURMD_PORT,
    WORKER,
)
from slurm.rights import WITHOUT_JAIL, WITHOUT_SET_UP
from slurm.sizing import extended_resources, node_document, shared_memory
from slurm.users import EXTRAUSERS, FILES

NO_AWAIT = "jsonpath={.status.observedGeneration}"
"""`pulumi.com/waitFor`: an update must not wait until a leaving node's jobs have ended, which can take days. It returns
when the StatefulSet controller has seen the change (measured: 2 s instead of the whole drain)."""

GRACE_SECONDS = 30
"""For slurmd itself to end after the last job."""

DRIVER_CAPABILITIES = "compute,utility,video"
"""What the GPU runtime brings into the container: CUDA and OpenCL, nvidia-smi and NVML, video codecs. Its own default
has changed with its versions."""

JOB_FILES = "/run/slurmstack/gpu-jobs"
"""In the pod and on the machine (images/common/gpu_jobs.py)."""

_CLAIM, _DISK = "scratch", "disk"
"""Names of the volume of a pool's scratch. One name for both would not do: server-side apply may leave of the old kind
what Kubernetes itself has added to it, and a volume of two kinds is refused."""


@dataclass(frozen=True, kw_only=True)
class WorkerPoolArgs:
    """Inputs of `WorkerPool`."""

    scope: Scope
    name: str
    """Of the pool."""
    pool: WorkerPoolConfig
    secrets: Secrets
    jail: JailVolume
    mounts: Sequence[Mount]
    health: Health | None
    """Settings for the checks; None where there are none."""
    configuration: Configuration
    """Slurm's, which has the declared users in it."""

    @property
    def job_metrics(self) -> bool:
        """Whether the nodes tell what their jobs use (images/worker/job_metrics)."""
        return self.scope.config.monitoring.is_on

    @property
    def placement(self) -> Placement:
        """Where the cloud wants the workers; what the pool itself says wins."""
        return self.scope.cloud.worker_placement(self.name, self.pool)

    @property
    def in_jail(self) -> bool:
        """Whether jobs run in the jail."""
        return self.pool.security == "confined"

    @property
    def has_sshd(self) -> bool:
        """Whether users get in by ssh, into their jobs."""
        return self.in_jail and self.scope.config.worker_ssh


class WorkerPool(pulumi.ComponentResource):
    """Slurm compute nodes of one kind: a StatefulSet of slurmd pods.

    Scaling changes `replicas` only. A removed pod drains its node, waits for the jobs and deletes the node record. Of a
    changed template the program `elastic` makes new pods as nodes fall idle. The pool is deleted before the namespace
    is, and while slurmctld answers.

    An elastic pool is a PodTemplate: from it the program `elastic` makes the pods of the nodes that Slurm wants just
    now. They go with it, each after its jobs.
    """

    def __init__(self, name: str, args: WorkerPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:WorkerPool", name, None, apart(opts))
        self._after = [*args.placement.machines, *([args.scope.tried] if args.scope.tried else [])]
        self._opts = pulumi.ResourceOptions(
            parent=self,
            depends_on=self._after,
            custom_timeouts=pulumi.CustomTimeouts(delete=f"{args.pool.drain_timeout + 2 * GRACE_SECONDS}s"),
        )
        made = self._create(name, args)
        self.register_outputs({"elastic" if args.pool.is_elastic else "stateful_set": made.metadata})

    def _create(self, name: str, args: WorkerPoolArgs) -> k8s.apps.v1.StatefulSet | k8s.core.v1.PodTemplate:
        pool, template = args.pool, _template(args)
        kind: dict[str, pulumi.Input[str]] = {"pulumi.com/waitFor": NO_AWAIT}
        if pool.is_elastic:
            kind = {ELASTIC_SETTINGS: settings(args.name, pool), ELASTIC_TEMPLATE: digest_of(template)}
        # It goes at once, and its pods stay until their jobs have ended. Where machines go with it, they are deleted
        # next, so the pods are waited for.
        deletion = {} if args.placement.machines else {"pulumi.com/deletionPropagationPolicy": "background"}
        metadata = args.scope.metadata(args.name, WORKER, pool=args.name)
        metadata.annotations = {**kind, MAX_UNAVAILABLE: str(args.scope.config.rolling.max_unavailable), **deletion}
        if pool.is_elastic:
            opts = self._opts
            if args.scope.config.cluster.admission_policy:
                bounds = hold_to_template(name, args.scope, args.name, template, self._after)
                opts = opts.merge(pulumi.ResourceOptions(depends_on=[bounds]))
            return k8s.core.v1.PodTemplate(f"{name}-template", metadata=metadata, template=template, opts=opts)
        selector = args.scope.label_selector(WORKER, pool=args.name)
        return workloads.stateful_set(name, metadata, selector, template, self._opts, replicas=pool.least, rolled=True)


def _template(args: WorkerPoolArgs) -> k8s.core.v1.PodTemplateSpecArgs:
    gives_back = args.pool.gives_back
    scraped = pods.scraped(JOB_METRICS_PORT) if args.job_metrics else {}
    return pods.pod_template(
        args.scope,
        WORKER,
        _placement(args.pool, args.placement),
        _pod(args),
        stays=not gives_back,
        knows_users=True,
        labels={**args.scope.labels(WORKER, pool=args.name), pods.SLURM_NODE_LABEL: "true"},
        annotations={**scraped, **(pods.STAY_UNTIL_NOTICE if gives_back else {})},
    )


def _placement(pool: WorkerPoolConfig, cloud: Placement) -> Placement:
    """The cloud's placement under the pool's own selector and tolerations."""
    return replace(
        cloud,
        node_selector={**cloud.node_selector, **pool.node_selector},
        tolerations=tuple(dict.fromkeys((*pool.tolerations, *cloud.tolerations))),
    )


def _pod(args: WorkerPoolArgs) -> k8s.core.v1.PodSpecArgs:
    pool = args.pool
    gpus = pool.resources.gpus
    # Without a jail to look users up in: the declared ones, as slurmctld has them. Not by Slurm's own way, with the job
    # (`enable_send_gids`): no user whom only the jail knows could start a job then.
    root = args.jail.volumes() if args.in_jail else [args.configuration.files_as("users", only=FILES)]
    return k8s.core.v1.PodSpecArgs(
        # The `preStop` hook waits for jobs; the rest is for slurmd itself to end.
        termination_grace_period_seconds=pool.drain_timeout + GRACE_SECONDS,
        priority_class_name=pool.priority_class,
        dns_config=args.scope.node_dns,
        topology_spread_constraints=workloads.spread(args.scope.label_selector(WORKER, pool=args.name)),
        init_containers=[pods.munge_sidecar(args.scope.image("worker"))],
        containers=[_slurmd(args), *([sshd(args.scope, args.jail, args.mounts)] if args.has_sshd else [])],
        volumes=[
            *pods.munge_volumes(args.secrets.munge.metadata.name),
            *root,
            *mount_volumes(args.mounts),
            *([] if args.health is None else [volumes.config_volume("health", args.health.settings.metadata.name)]),
            volumes.memory_dir("shm", size_limit=shared_memory(pool)),
            # Users can write there too, by PMIx: kubelet would evict all jobs of the node for 4 GiB of one.
            volumes.empty_dir("spool", size_limit=pool.tmp),
            _temporary_volume(args.scope, args.name, pool),
            volumes.empty_dir("run", size_limit=pods.SMALL),
            *(sshd_volumes(args.secrets) if args.has_sshd else []),
            # Its exporter of GPUs' figures is in another pod, and not ours. The machine's next boot finds it empty.
            *([volumes.host_directory("gpu-jobs", JOB_FILES, kind="DirectoryOrCreate")] if gpus.job_files else []),
        ],
    )


def _slurmd(args: WorkerPoolArgs) -> k8s.core.v1.ContainerArgs:
    pool = args.pool
    leave = k8s.core.v1.ExecActionArgs(command=[*WITHOUT_SET_UP, f"{pods.LIBEXEC}/leave"])
    return k8s.core.v1.ContainerArgs(
        name="slurmd",
        image=args.scope.image("worker"),
        command=[f"{pods.LIBEXEC}/slurmd"],
        env=[
            *pods.env(
                CONTROLLER=pods.CONTROLLER_ADDRESS,
                POOL=args.name,
                NODE_CONF=json.dumps(node_document(args.name, pool)),
                JAIL=JAIL_DIR if args.in_jail else "",
                **_confinement(args),
                **({"JOB_METRICS": "yes"} if args.job_metrics else {}),
                **({"ELASTIC": mark(args.name, pool)} if pool.is_elastic else {}),
                **({"PREEMPTIBLE": "yes"} if pool.gives_back else {}),
                **(args.jail.env if args.in_jail else {}),
                **mounts_env(args.mounts, in_jail=args.in_jail, shared=args.jail.shared()),
                **_gpu_env(pool.resources.gpus),
            ),
            *_scratch_env(pool),
        ],
        ports=[
            k8s.core.v1.ContainerPortArgs(name="slurmd", container_port=SLURMD_PORT),
            *(
                [k8s.core.v1.ContainerPortArgs(name="job-metrics", container_port=JOB_METRICS_PORT)]
                if args.job_metrics
                else []
            ),
        ],
        lifecycle=k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(exec_=leave)),
        # When it has fetched its configuration from slurmctld. Not a TCP probe: slurmd logs two errors for each
        # connection that says nothing.
        readiness_probe=pods.exec_probe("test", "-e", "/run/slurm/conf/slurm.conf", period=10),
        security_context=_security_context(args),
        volume_mounts=[
            pods.munge_mount(),
            *(args.jail.mounts() if args.in_jail else [volumes.mount("users", EXTRAUSERS, read_only=True)]),
            *container_mounts(args.mounts, in_jail=args.in_jail),
            *([volumes.mount("health", SETTINGS_DIR, read_only=True)] if args.health is not None else []),
            volumes.mount("shm", "/dev/shm"),
            volumes.mount("spool", "/var/spool/slurmd"),
            _temporary_mount(args.scope, pool),
            volumes.mount("run", "/run/slurm"),
            *([PUBLIC_KEY_MOUNT] if args.has_sshd else []),
            *([volumes.mount("gpu-jobs", JOB_FILES)] if pool.resources.gpus.job_files else []),
        ],
        resources=pods.resources(
            cpu=cpu_request(args),
            memory=pool.resources.memory,
            memory_limit=pool.resources.memory,
            disk=pods.disk_for(pool.tmp),
            devices={**extended_resources(pool), **args.placement.devices},
        ),
    )


def _temporary_volume(scope: Scope, name: str, pool: WorkerPoolConfig) -> k8s.core.v1.VolumeArgs:
    """The volume of /tmp in a worker of the pool of this name; without scratch a directory of the machine's disk."""
    scratch = pool.scratch
    if scratch is None:
        return volumes.empty_dir("tmp", size_limit=pool.tmp)
    if scratch.storage_class is None:
        assert scratch.host_path is not None
        # Never made: where the disk is not mounted, the pod must not start on the disk below.
        return volumes.host_directory(_DISK, scratch.host_path)
    template = k8s.core.v1.PersistentVolumeClaimTemplateArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(labels=scope.labels(WORKER, pool=name)),
        spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
            access_modes=["ReadWriteOnce"],
            storage_class_name=scratch.storage_class,
            resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": scratch.size}),
        ),
    )
    source = k8s.core.v1.EphemeralVolumeSourceArgs(volume_claim_template=template)
    return k8s.core.v1.VolumeArgs(name=_CLAIM, ephemeral=source)


def _temporary_mount(scope: Scope, pool: WorkerPoolConfig) -> k8s.core.v1.VolumeMountArgs:
    """It at /tmp. Of a directory of the machine each pod sees its own part, also beside those of other clusters."""
    if pool.scratch is None:
        return volumes.mount("tmp", "/tmp")
    if pool.scratch.host_path is None:
        return volumes.mount(_CLAIM, "/tmp")
    return k8s.core.v1.VolumeMountArgs(name=_DISK, mount_path="/tmp", sub_path_expr=f"{scope.name}/$(POD_NAME)")


def _scratch_env(pool: WorkerPoolConfig) -> list[k8s.core.v1.EnvVarArgs]:
    """What the worker's programs are told of it (images/worker/scratch.py)."""
    if pool.scratch is None:
        return []
    if pool.scratch.host_path is None:
        return pods.env(SCRATCH="storage_class")
    return [*pods.env(SCRATCH="host_path"), pods.field_env("POD_NAME", "metadata.name")]


def _confinement(args: WorkerPoolArgs) -> dict[str, str]:
    """What slurmd's start is told of it, where it differs from its own defaults.

    Jobs are bound to cores where these are the pod's own: it has asked Kubernetes for all of them. Where several pods
    share them, each of them would bind its first job to the first core.
    """
    pool = args.pool
    asked = parse_cpus(cpu_request(args))
    given = sorted(OF_THE_WORKER & folded(args.scope.config.slurm.settings).keys())
    return {
        **({"CONFINEMENT": pool.confinement} if pool.confinement != "auto" else {}),
        **({"CONTAINERS": "yes"} if pool.containers else {}),
        **({"PLUGINS": " ".join(given)} if given else {}),
        **({"SHARED_CPUS": "yes"} if asked < pool.resources.cpus else {}),
    }


def _gpu_env(gpus: Gpus) -> dict[str, str]:
    """What the vendor's runtime and slurmd's start are told of the node's GPUs."""
    if not gpus.count:
        return {}
    return (
        {"GPU_VENDOR": gpus.vendor} if gpus.vendor != "nvidia" else {"NVIDIA_DRIVER_CAPABILITIES": DRIVER_CAPABILITIES}
    )


def cpu_request(args: WorkerPoolArgs) -> str:
    """The CPU that the pod asks Kubernetes for."""
    return args.pool.resources.cpu_request or args.scope.cloud.worker_cpu_request(args.pool.resources.cpus)


def _security_context(args: WorkerPoolArgs) -> k8s.core.v1.SecurityContextArgs:
    """The way into the jail; for pools with RDMA devices also CAP_SYS_RESOURCE.

    RDMA locks memory, of which containers often may lock 8 MiB. slurmd's start raises the limit for the jobs
    (images/worker/slurmd.py). CAP_IPC_LOCK, which such pods usually get, would not do: a job's processes belong to a
    user and so have no capabilities (tests/slurm/test_boundary.py).
    """
    more = ["SYS_RESOURCE"] if args.placement.devices else []
    if args.in_jail:
        return pods.into_jail("slurmd", *more)
    return k8s.core.v1.SecurityContextArgs(
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=[*WITHOUT_JAIL, *more])
    )
