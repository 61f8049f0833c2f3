"""Who may connect to whom in the cluster's namespace, and what the pods that users work in reach outside.

One table for both sides of a connection: a network policy has to allow it where it begins and where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from config.cluster import ClusterConfig
from config.sections.services import INTERNET, Egress
from slurm.health import WATCH
from slurm.names import (
    ACCOUNTING,
    AGENT_PORT,
    BACKUP,
    CONTROLLER,
    DATABASE,
    DATABASE_PORT,
    ELASTIC,
    ELASTIC_PORT,
    EXPORTER,
    EXPORTER_PORT,
    JOB_METRICS_PORT,
    KUBE_STATE,
    KUBE_STATE_PORT,
    PROMETHEUS,
    PROMETHEUS_PORT,
    REST,
    REST_PORT,
    SLURMCTLD_PORT,
    SLURMD_PORT,
    SLURMDBD_PORT,
    WORKER,
)

NODES = "slurm-nodes"
"""Workers and login nodes: where users' programs run."""

CONFIGURATION, POLICY = "configuration", "policy"
"""Jobs that wait until slurmctld has its new configuration; the second then sets accounts."""

FREE = (CONTROLLER, WATCH, ELASTIC)
"""They follow objects of Kubernetes, whose API has another address and port in each cluster; no user's program runs in
them."""

API_PORTS = (443, 6443)
"""Where most clusters have the API of Kubernetes; no cloud gives credentials there."""

DNS_PORTS = (53, 5353)
"""The second is that of the pods behind OpenShift's DNS Service: most networks look at where a connection arrives."""

DIRECTORY_PORTS = (88, 389, 464, 636, 3268, 3269)
"""Where SSSD asks: Kerberos, LDAP, changes of passwords, LDAP with TLS, Active Directory's global catalogue."""

METADATA = ("169.254.169.254/32", "168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128")
"""Where clouds tell a machine who it is and give it credentials: most clouds, Azure, Alibaba, AWS and Google by IPv6.
They answer every program of the machine, pods and jobs too."""

PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10")
"""Addresses that mean something else in each network: kubelets, the API server, Services, machines of the site."""


@dataclass(frozen=True)
class Link:
    """Pods of `source` connect to this TCP port of pods of `target`; None: to any port, also with UDP."""

    source: str
    target: str
    port: int | None


@dataclass(frozen=True)
class Destination:
    """Addresses outside: a range without parts of it. No ports: all."""

    cidr: str
    without: tuple[str, ...]
    ports: tuple[int, ...]
    protocol: str = "TCP"


_LINKS = (
    *(Link(client, CONTROLLER, SLURMCTLD_PORT) for client in (NODES, ACCOUNTING, WATCH, ELASTIC, POLICY, REST)),
    *(Link(waiting, CONTROLLER, AGENT_PORT) for waiting in (CONFIGURATION, POLICY)),
    # sacct and sacctmgr ask slurmdbd themselves.
    *(Link(client, ACCOUNTING, SLURMDBD_PORT) for client in (NODES, CONTROLLER, POLICY, REST)),
    *(Link(client, DATABASE, DATABASE_PORT) for client in (ACCOUNTING, POLICY, BACKUP)),
    # MPI programs, srun and steps connect to each other on ports of their own choice.
    *(Link(source, NODES, None) for source in (NODES, CONTROLLER)),
    # The watcher asks slurmd whether it is there when Kubernetes has lost the machine.
    Link(WATCH, NODES, SLURMD_PORT),
    Link(NODES, REST, REST_PORT),
    Link(EXPORTER, CONTROLLER, SLURMCTLD_PORT),
    Link(EXPORTER, CONTROLLER, AGENT_PORT),
    Link(EXPORTER, ACCOUNTING, SLURMDBD_PORT),
    Link(PROMETHEUS, EXPORTER, EXPORTER_PORT),
    Link(PROMETHEUS, NODES, JOB_METRICS_PORT),
    Link(PROMETHEUS, KUBE_STATE, KUBE_STATE_PORT),
)


def links(config: ClusterConfig) -> tuple[Link, ...]:
    """Every connection between the pods that a stack has."""
    there = {
        ACCOUNTING: config.accounting.enabled,
        POLICY: config.accounting.enabled,
        DATABASE: config.accounting.own_database is not None,
        WATCH: config.health.enabled,
        REST: config.rest.enabled,
        EXPORTER: config.monitoring.is_on,
        PROMETHEUS: config.monitoring.install,
        KUBE_STATE: config.monitoring.has_kube_state,
        BACKUP: config.backup is not None,
    }
    found = tuple(link for link in _LINKS if there.get(link.source, True) and there.get(link.target, True))
    return (*found, *((Link(CONTROLLER, ELASTIC, ELASTIC_PORT),) if config.elastic_pools else ()))


def outside(config: ClusterConfig) -> dict[str, tuple[Destination, ...]]:
    """What pods of a component reach besides each other and DNS. Those that are not in it: nothing."""
    directory = _everywhere(DIRECTORY_PORTS) if config.sssd is not None else ()
    external = config.accounting.database.external
    database = _everywhere((external.port,)) if external is not None else ()
    allowed = {
        NODES: (*(found for rule in config.network_policies.egress for found in _destinations(rule)), *directory),
        ACCOUNTING: (*database, *directory),
        POLICY: database,
        REST: directory,
        # Whom Alertmanager tells is in a Secret.
        PROMETHEUS: _everywhere(()) if config.monitoring.alertmanager_secret is not None else (),
        BACKUP: (*_everywhere((config.backup.port,)), *database) if config.backup is not None else (),
        # Kubernetes' API, as FREE; but its image may be somebody else's.
        KUBE_STATE: _everywhere(()) if config.monitoring.has_kube_state else (),
    }
    return {component: found for component, found in allowed.items() if found}


def _everywhere(ports: tuple[int, ...]) -> tuple[Destination, ...]:
    """A server whose address only a Secret or DNS knows."""
    return tuple(_without_metadata(cidr, ports) for cidr in ("0.0.0.0/0", "::/0"))


def _destinations(rule: Egress) -> Iterator[Destination]:
    if rule.to == INTERNET:
        for cidr in ("0.0.0.0/0", "::/0"):
            closed = _inside(cidr, (*PRIVATE, "168.63.129.16/32"))
            yield Destination(cidr, closed, rule.ports, rule.protocol)
    else:
        yield _without_metadata(rule.to, rule.ports, rule.protocol)


def _without_metadata(cidr: str, ports: tuple[int, ...], protocol: str = "TCP") -> Destination:
    """A range but for the clouds' credentials; one that is nothing else was meant."""
    return Destination(cidr, tuple(found for found in _inside(cidr, METADATA) if found != cidr), ports, protocol)


def _inside(cidr: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Those parts that lie in a range; Kubernetes refuses others as exceptions of it."""
    whole = ip_network(cidr)
    return tuple(part for part in parts if _is_inside(ip_network(part), whole))


def _is_inside(part: IPv4Network | IPv6Network, whole: IPv4Network | IPv6Network) -> bool:
    if isinstance(part, IPv4Network):
        return isinstance(whole, IPv4Network) and part.subnet_of(whole)
    return isinstance(whole, IPv6Network) and part.subnet_of(whole)


def scraped(config: ClusterConfig) -> dict[str, int]:
    """Ports that pods of other namespaces may connect to, by component: a Prometheus or a Grafana that is there.

    With `monitoring.existing` those of its namespace alone. Of workers only, not all of NODES: on a login node a user's
    program may have the port.
    """
    if not config.monitoring.is_on:
        return {}
    return {
        EXPORTER: EXPORTER_PORT,
        WORKER: JOB_METRICS_PORT,
        **({PROMETHEUS: PROMETHEUS_PORT} if config.monitoring.install else {}),
    }
