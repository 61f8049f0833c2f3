"""What goes into the archive: each file's name, and how its text is read."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from platform import python_version
from typing import Any

import yaml

from cli.bundle.redact import without_secrets
from cli.doctor.cluster.collect import collect
from cli.doctor.cluster.diagnose import diagnose
from cli.doctor.cluster.present import as_data as findings_as_data
from cli.errors import Failure
from cli.health.present import as_data
from cli.health.query import read_nodes
from cli.kubectl.client import ANSWER_SECONDS, Kubectl, complaint, in_controller
from cli.logs.lines import in_order
from cli.logs.sources import containers, events, read_log
from cli.stack import Stack
from cli.status.read import read_status
from cli.status.slurm import configuration_state
from config.load import read_document

Read = Callable[[], str]
"""Reads one file's text. Raises Failure."""

_LOG_LINES = 20_000

_KINDS = (
    "pods", "statefulsets", "deployments", "daemonsets", "replicasets", "jobs", "services", "endpointslices",
    "configmaps", "persistentvolumeclaims", "networkpolicies", "poddisruptionbudgets", "serviceaccounts", "roles",
    "rolebindings", "resourcequotas", "limitranges", "leases",
)  # fmt: skip

_OUTSIDE = ("nodes", "persistentvolumes", "storageclasses")
"""Kinds that are in no namespace. Who has rights in the namespace alone gets none of them."""

_SACCT = "jobid,jobname,user,account,partition,state,submit,start,end,elapsed,nodelist,exitcode,alloctres"

_SLURM: dict[str, tuple[str, ...]] = {
    "version": ("scontrol", "--version"),
    "config": ("scontrol", "show", "config"),
    "nodes": ("scontrol", "show", "nodes"),
    "partitions": ("scontrol", "show", "partitions"),
    "jobs": ("scontrol", "show", "jobs"),
    "reservations": ("scontrol", "show", "reservations"),
    "licenses": ("scontrol", "show", "licenses"),
    "priorities": ("sprio", "--long"),
    "sdiag": ("sdiag",),
    "squeue": ("squeue", "--all", "--long"),
    "sinfo": ("sinfo", "--Node", "--long"),
    "sinfo-reasons": ("sinfo", "--list-reasons"),
    "associations": ("sacctmgr", "--parsable2", "show", "associations", "withdeleted"),
    "qos": ("sacctmgr", "--parsable2", "show", "qos"),
    "sacct": ("sacct", "--allusers", "--parsable2", "--starttime=now-1days", f"--format={_SACCT}"),
}
"""What is asked of Slurm, and what the file is called."""


def version_parts(kubectl: Kubectl, stack: Stack) -> dict[str, Read]:
    """What is there without any right in the namespace."""
    return {
        "stack.yaml": lambda: _stack_file(stack),
        "versions/slurmstack.txt": _own_versions,
        "versions/kubernetes.json": lambda: kubectl.run("version", "-o", "json").stdout,
    }


def cluster_parts(kubectl: Kubectl, stack: Stack, pods: list[dict[str, Any]]) -> dict[str, Read]:
    """What is read of the cluster, its logs of these pods."""
    namespace = stack.config.cluster.namespace
    found: dict[str, Read] = {
        "status.json": lambda: _status(kubectl, stack),
        "doctor.json": lambda: _findings(kubectl, stack),
        "health.json": lambda: _json(as_data(read_nodes(kubectl, namespace), namespace=namespace)),
        "events.txt": lambda: _events(kubectl, namespace),
        "slurm/configuration-agent.json": lambda: _agent(kubectl, namespace),
        "kubernetes/secrets.json": lambda: _secrets(kubectl, namespace),
    }
    found |= {f"slurm/{name}.txt": partial(_slurm, kubectl, namespace, command) for name, command in _SLURM.items()}
    found |= {f"kubernetes/{kind}.json": partial(_objects, kubectl, kind, "-n", namespace) for kind in _KINDS}
    found |= {f"kubernetes/{kind}.json": partial(_objects, kubectl, kind) for kind in _OUTSIDE}
    return found | dict(_logs(kubectl, namespace, pods))


def _logs(kubectl: Kubectl, namespace: str, pods: list[dict[str, Any]]) -> Iterator[tuple[str, Read]]:
    """The logs of all containers, also of before their last restart."""
    read = partial(read_log, kubectl, namespace)
    for container in containers(pods):
        yield f"logs/{container.place}.log", partial(read, container, f"--tail={_LOG_LINES}")
        if container.restarted:
            name = f"logs/{container.place}.previous.log"
            yield name, partial(read, container, f"--tail={_LOG_LINES}", "--previous")


def _stack_file(stack: Stack) -> str:
    """As it was read: without comments, which nobody looks through."""
    document = without_secrets(read_document(stack.file))
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100_000)


def _status(kubectl: Kubectl, stack: Stack) -> str:
    found = read_status(kubectl, stack.config)
    if not found.pods and found.unread.get("pods") and found.slurmctld:
        raise Failure(f"pods: {found.unread['pods']}; slurmctld: {found.slurmctld}")
    return _json(asdict(found))


def _findings(kubectl: Kubectl, stack: Stack) -> str:
    """What `slurmstack doctor` would say."""
    facts = collect(kubectl, stack.config)
    if not facts.pods and not facts.owners and "slurm" in facts.unread:
        raise Failure("; ".join(f"{part}: {why}" for part, why in facts.unread.items()))
    return _json(findings_as_data(facts, diagnose(facts)))


def _own_versions() -> str:
    system = os.uname()  # `platform` starts a program to find out the same
    return (
        f"slurmstack {version('slurmstack')}\nPython {python_version()}\n"
        f"{system.sysname} {system.release} {system.machine}\n"
    )


def _json(document: Any) -> str:
    return json.dumps(without_secrets(document), indent=1, ensure_ascii=False) + "\n"


def _objects(kubectl: Kubectl, kind: str, *where: str) -> str:
    """Objects of a kind."""
    return _json(kubectl.items(kind, *where))


def _secrets(kubectl: Kubectl, namespace: str) -> str:
    """Which Secrets there are, with the length of what each key has."""
    found = [
        {
            "name": item["metadata"]["name"],
            "type": item.get("type"),
            "created": item["metadata"].get("creationTimestamp"),
            "keys": [{"key": key, "bytes": len(b64decode(value))} for key, value in (item.get("data") or {}).items()],
        }
        for item in kubectl.items("secrets", "-n", namespace)
    ]
    return json.dumps(found, indent=1) + "\n"


def _events(kubectl: Kubectl, namespace: str) -> str:
    return "".join(f"{line}\n" for line in in_order(events(kubectl, namespace)))


def _agent(kubectl: Kubectl, namespace: str) -> str:
    state = configuration_state(kubectl, namespace)
    if state is None:
        raise Failure("the configuration agent has left no state, or the controller does not answer")
    return _json(state)


def _slurm(kubectl: Kubectl, namespace: str, command: tuple[str, ...]) -> str:
    done = in_controller(kubectl, namespace, *command, seconds=2 * ANSWER_SECONDS)
    if done.returncode != 0:
        raise Failure(complaint(done))
    return done.stdout
