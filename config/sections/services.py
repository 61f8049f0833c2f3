"""The sections of services and of what reaches them: cluster, controller, login, images, REST API, networks."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from config.base import (
    PART_SCHEMA,
    Cpu,
    Matching,
    Memory,
    Quantity,
    Section,
    Volume,
    amount_or_part,
    at_least,
    once,
    parse_bytes,
)
from config.names import (
    Cidr,
    LabelKey,
    ObjectName,
    Registry,
    address_range,
    dns_label,
)
from config.sections.storage import Filesystem


def _namespace(name: str) -> str:
    if name == "default" or name.startswith("kube-"):
        raise ValueError("belongs to Kubernetes itself; name a namespace that only this cluster uses")
    return name


class Cluster(Section):
    """Names of the whole."""

    namespace: Annotated[str, dns_label(longest=63), AfterValidator(_namespace)] = "slurm"
    """Kubernetes namespace that holds every object of this cluster, and nothing else."""
    user_namespaces: bool = Field(default=False, strict=True)
    """Whether root in a pod is nobody on its machine (`hostUsers: false`). The file systems of all volumes must take
    idmapped mounts: NFS does not, and virtiofs only with recent kernels."""
    priority_class: ObjectName | None = None
    """PriorityClass of all pods but those of pools that name their own. It says which pods Kubernetes ends for others
    where machines are full, and must be there. Default: for Slurm's daemons and login nodes
    one that we make, for others the Kubernetes cluster's own. Ours gives them room before workers, and ends no pod for
    them."""
    admission_policy: bool = Field(default=True, strict=True)
    """Whether the API server holds `elastic` to pods of elastic pools. Turn it off where a webhook changes images,
    variables or mounts of these pods: they would be refused."""


class Controller(Section):
    """slurmctld and its state."""

    storage: Volume = "10Gi"
    """Size of the volume with the job queue and Slurm's other state; at least 100Mi."""
    storage_class: ObjectName | None = None
    """Storage class of that volume. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """Access mode of that volume, which can never change. With ReadWriteMany a controller whose machine is lost need
    not wait elsewhere until the volume is detached; the storage class must offer it."""
    standby: bool = Field(default=False, strict=True)
    """Whether a second controller waits, and goes on in seconds where the first one's machine is lost or hangs. It
    takes access_mode ReadWriteMany."""
    filesystem: Filesystem | None = None
    """A shared file system of the cloud for the state. Default: a disk of the cluster's storage class."""
    cpu: Cpu = "100m"
    """CPU that slurmctld asks Kubernetes for."""
    memory: Memory = "256Mi"
    """Memory that slurmctld asks Kubernetes for; at least 32Mi. There is no limit: a queue of 100,000 jobs must not
    kill it."""


class UserLimits(Section):
    """What one user may take of a login node. Jobs are not bound by these. null, or left out: no limit."""

    processes: int | None = Field(default=4096, ge=10, le=1_000_000, strict=True)
    """Processes and threads of all of the user's sessions (`nproc`). The kernel counts all of the user's on the same
    machine, those of jobs too."""
    open_files: int | None = Field(default=None, ge=64, le=1_048_576, strict=True)
    """Open files of each process (`nofile`)."""
    memory: Annotated[Quantity, at_least("64Mi", "a shell and the threads of srun")] | None = None
    """Address space of each process (`as`); at least 64Mi."""
    total_memory: Annotated[Quantity, at_least("64Mi", "a shell and the threads of srun")] | None = None
    """Memory of all of the user's processes together; at least 64Mi. Beyond it the kernel ends the largest of them.
    Default: half of what the login node has for users. It takes version 2 of cgroups, as `total_cpus` does."""
    total_cpus: Cpu | None = None
    """CPU that all of the user's processes together use at most, as `2` or `500m`. Default: what is
    free; users who compete get equal parts of it."""
    cpu_minutes: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    """CPU time of each process, in minutes (`cpu`)."""


class Login(Section):
    """Login nodes: sshd into the jail."""

    user_limits: UserLimits = Field(default_factory=UserLimits)
    """What one user may take of a login node."""
    size: int = Field(default=2, ge=0, le=100, strict=True)
    """Number of login nodes behind the one Service; a connection goes to a random one."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Kubernetes Service for SSH."""
    node_port: int | None = Field(default=None, ge=1024, le=65535, strict=True)
    """Port on every Kubernetes node, with `service_type: NodePort`. Default: chosen by Kubernetes."""
    source_ranges: tuple[Cidr, ...] = ()
    """Address ranges that may connect, with `service_type: LoadBalancer`. Default: all."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the Service, for the cloud's load balancer."""
    cpu: Cpu = "50m"
    """CPU that a login node asks Kubernetes for."""
    memory: Memory = "128Mi"
    """Memory that a login node asks Kubernetes for; at least 32Mi."""
    memory_limit: Quantity | None = None
    """Memory of a login node at most, for all of its users together. Beyond it the kernel ends the largest process.
    Default: 8Gi, or `memory` where that is more."""
    tmp: Volume = "20Gi"
    """Size of `/tmp` of a login node; at least 100Mi. Kubernetes ends a pod that has more in it, and starts it with an
    empty one."""

    @property
    def most_memory(self) -> str:
        """The memory limit in force."""
        return self.memory_limit or max("8Gi", self.memory, key=parse_bytes)


ImageRole = Literal["controller", "worker", "login", "jail", "accounting", "database", "rest", "exporter", "monitoring"]


Package = Annotated[
    str,
    # Debian's policy, but for a dash at the end: no package has one, and to apt it means to remove the rest.
    Matching(
        r"^[a-z0-9][a-z0-9+.-]*[a-z0-9+.]$",
        "is not the name of a Debian package: two or more small letters, digits, '+', '-' and '.'",
    ),
]
"""The name of a Debian package, for example `libopenblas-dev`."""


CUDA_VERSIONS = ("24.11",)
"""Versions of Slurm in whose Debian suite CUDA is: forky, which carries 26.05, has none (November 2026)."""

NO_CUDA = (
    "is not to be had with Slurm {version}: its Debian has no CUDA; remove it, and install NVIDIA's own packages, or "
    "pip's or conda's, in the jail (docs/gpus.md)"
)


class JailImage(Section):
    """What is in the jail's image besides what it always has. A jail that is filled already does not change."""

    packages: Annotated[tuple[Package, ...], AfterValidator(once)] = ()
    """Further packages of Debian."""
    cuda: bool = Field(default=False, strict=True)
    """Whether CUDA and NCCL are in it, of Debian's components non-free and contrib: about 5.4 GB. Debian has them for
    Slurm 24.11 only. The GPU driver stays that of each machine."""


class Images(Section):
    """Where the container images come from."""

    registry: Registry | None = None
    """Prefix of the images' names: a host, with a port where it needs one, and a path. Default: images built on this
    machine."""
    tag: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
    """Tag of all images. Default: computed from the content of `images/`."""
    digests: dict[ImageRole, Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]] = Field(default_factory=dict)
    """Exact content of the image of each role, as `slurmstack images push` prints it. It wins over the tag."""
    pull_secret: ObjectName | None = None
    """Name of a Secret in the namespace with credentials for the registry."""
    jail: JailImage = Field(default_factory=JailImage)
    """What the jail's image has besides: packages of Debian, CUDA."""

    def _problem(self) -> str | None:
        lost = self.digests and self.registry is None
        return "digests are those of a registry: set registry, too" if lost else None


HostName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$", max_length=253),
]
"""A DNS name in small letters."""


class RestTls(Section):
    """The certificate of the REST API."""

    secret: ObjectName | None = None
    """Secret of the type `kubernetes.io/tls` with your own certificate. Default: one that is made for the cluster; the
    stack exports its authority."""
    names: tuple[HostName, ...] = ()
    """Host names (or IPv4 addresses) that the certificate is for, besides those inside the cluster."""


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


class Dashboard(Section):
    """A page that shows nodes, queue and jobs; it changes nothing. Its users log in with a token of Slurm's."""

    enabled: bool = Field(default=False, strict=True)
    """Whether there is a page, at `/dashboard/` of the REST API, which must be there too (`rest.enabled`)."""


class Rolling(Section):
    """New pods for worker nodes, as these fall idle: idle nodes first, then those whose jobs end soonest."""

    max_unavailable: Annotated[int | str, amount_or_part("nodes", least=1, most=5000), PART_SCHEMA] = "10%"
    """Nodes of a pool that may be away or kept from jobs for it at once: a number, or a percentage of the pool, rounded
    up. Nodes that are away for another reason count, and so do new pods that do not become ready."""


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


class NetworkPolicies(Section):
    """Who may connect to what: pods of the namespace to each other, and login nodes and jobs to what is outside."""

    enabled: bool = Field(default=True, strict=True)
    """Whether NetworkPolicy objects are made. They have effect only where the cluster's network enforces them."""
    egress: tuple[Egress, ...] = (Egress(to=INTERNET),)
    """What login nodes and jobs may connect to outside, besides DNS. Default: the Internet, and so no private address
    of machines, kubelets and Kubernetes' API. A list of your own replaces it; `[]` closes everything."""
