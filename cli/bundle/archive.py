"""The archive: what goes into it, none of its secrets, and a list of what is in it and what is not."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import version
from platform import python_version
from typing import IO, Any

import yaml

from cli.bundle.redact import Redactor, redactor, without_secrets
from cli.doctor.cluster.findings import as_data as findings_as_data
from cli.doctor.cluster.rules import diagnose
from cli.errors import Failure
from cli.health.query import refuse_no_namespace
from cli.kubectl.client import ANSWER_SECONDS, Kubectl, complaint, in_controller
from cli.logs.lines import containers, read_log, side_by_side
from cli.stack import Stack
from cli.status.questions import DOCTOR
from cli.status.read import read_status
from cli.status.snapshot import take
from cli.text import plain
from config.load import read_document

MANIFEST = "MANIFEST.txt"

_MOST, _LEAST, _ALL = 2 * 1024**2, 64 * 1024, 256 * 1024**2
"""Characters of one file and of all: of a longer one the end is kept, and less where there are many."""

Read = Callable[[], str]
"""Reads one file's text. Raises Failure."""

_LOG_LINES = 20_000

_KINDS = (
    "statefulsets", "deployments", "daemonsets", "replicasets", "jobs", "services", "endpointslices",
    "configmaps", "persistentvolumeclaims", "networkpolicies", "poddisruptionbudgets", "serviceaccounts", "roles",
    "rolebindings", "resourcequotas", "limitranges", "leases", "events",
)  # fmt: skip

_OUTSIDE = ("nodes", "persistentvolumes", "storageclasses")
"""Kinds that are in no namespace. Who has rights in the namespace alone gets none of them."""

_SACCT = "jobid,jobname,user,account,partition,state,submit,start,end,elapsed,nodelist,exitcode,alloctres"

_SLURM: dict[str, tuple[str, ...]] = {
    **{
        what: ("scontrol", "show", what)
        for what in ("config", "nodes", "partitions", "jobs", "reservations", "licenses")
    },
    "sdiag": ("sdiag",),
    "associations": ("sacctmgr", "--parsable2", "show", "associations", "withdeleted"),
    "qos": ("sacctmgr", "--parsable2", "show", "qos"),
    "sacct": ("sacct", "--allusers", "--parsable2", "--starttime=now-1days", f"--format={_SACCT}"),
}
"""What is asked of Slurm, and what the file is called."""


@dataclass(kw_only=True)
class Bundle:
    """What was read, by the names of files, and what was not."""

    texts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a file is not there."""
    redact: Redactor = field(default_factory=Redactor)
    """Takes secrets out: nothing is kept or written that has not gone through it."""

    def read(self, parts: dict[str, Read], tell: Callable[[int, int, str], None]) -> None:
        """Read parts side by side."""
        most = max(_LEAST, min(_MOST, _ALL // max(len(parts), 1)))

        def read_one(read: Read) -> str:
            text = self.redact(read())  # cut at last: half of a secret is found by nobody
            over = len(text) - most
            return text if over <= 0 else f"[the first {over} characters are left out]\n{text[over:]}"

        with side_by_side() as pool:
            asked = {pool.submit(read_one, read): name for name, read in parts.items()}
            for number, answer in enumerate(as_completed(asked), start=1):
                name = asked[answer]
                tell(number, len(asked), name)
                try:
                    self.texts[name] = answer.result()
                except Failure as failure:
                    self.missing[name] = plain(str(failure))
                except (LookupError, TypeError, ValueError, AttributeError) as error:  # in a form that nobody expected
                    self.missing[name] = f"not understood: {type(error).__name__}"

    def manifest(self, head: str) -> str:
        """The list of the files, and of what could not be read and why."""
        width = max(map(len, (*self.texts, *self.missing, "")))
        files = [f"{name.ljust(width)} {len(text.encode()):>9} bytes" for name, text in sorted(self.texts.items())]
        missing = [f"{name.ljust(width)} {why}" for name, why in sorted(self.missing.items())]
        return self.redact("\n".join([head, "", "Files:", *files, "", "Not read:", *(missing or ["nothing"]), ""]))

    def write(self, stream: IO[bytes], *, folder: str, head: str, at: datetime) -> None:
        """Write the archive, with all files in one folder."""
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for name, text in [(MANIFEST, self.manifest(head)), *sorted(self.texts.items())]:
                content = text.encode("utf-8", "replace")
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime, member.mode = len(content), int(at.timestamp()), 0o600
                archive.addfile(member, io.BytesIO(content))


SECRETS_UNREAD = "the values of Secrets, to look for them in all other files"
"""What is missing where these credentials may not read them."""

_OWN_WORDS = frozenset({"kubernetes/version.json", "status.json", "doctor.json"})
"""Files that are there without any right in the namespace."""


def read_bundle(kubectl: Kubectl, stack: Stack, tell: Callable[[int, int, str], None]) -> Bundle:
    """Read all that can be. Raises Failure if that is nothing."""
    namespace = stack.config.cluster.namespace
    bundle = Bundle()
    objects: dict[str, list[dict[str, Any]]] = {"secrets": [], "pods": []}
    for kind, lacking in (("secrets", SECRETS_UNREAD), ("pods", "logs, and kubernetes/pods.json")):
        try:
            objects[kind] = kubectl.items(kind, "-n", namespace)
        except Failure as failure:
            bundle.missing[lacking] = plain(str(failure))
    bundle.redact = redactor(objects["secrets"])
    if not objects["pods"]:
        refuse_no_namespace(kubectl, namespace)
    bundle.read(_parts_of(kubectl, stack, objects["pods"]), tell)
    if bundle.texts.keys() <= _OWN_WORDS:
        reason = next(iter(bundle.missing.values()), "")
        raise Failure(f"nothing of namespace {namespace} could be read: {reason}")
    if SECRETS_UNREAD not in bundle.missing:
        names = {item["metadata"]["name"]: sorted(item.get("data") or {}) for item in objects["secrets"]}
        bundle.texts["kubernetes/secrets.json"] = json.dumps(names, indent=1) + "\n"
    # As it was read: without comments, which nobody looks through.
    document = without_secrets(read_document(stack.file))
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100_000)
    bundle.texts["stack.yaml"] = bundle.redact(text)
    return bundle


def _parts_of(kubectl: Kubectl, stack: Stack, pods: list[dict[str, Any]]) -> dict[str, Read]:
    """What is read of the cluster, its logs of these pods, also of before the last restart of a container."""
    namespace = stack.config.cluster.namespace
    found: dict[str, Read] = {
        "kubernetes/version.json": lambda: kubectl.run("version", "-o", "json").stdout,
        "status.json": lambda: _json(asdict(read_status(kubectl, stack.config))),
        "doctor.json": lambda: _findings(kubectl, stack),
    }
    found |= {f"slurm/{name}.txt": partial(_slurm, kubectl, namespace, command) for name, command in _SLURM.items()}
    found |= {f"kubernetes/{kind}.json": partial(_objects, kubectl, kind, "-n", namespace) for kind in _KINDS}
    found |= {f"kubernetes/{kind}.json": partial(_objects, kubectl, kind) for kind in _OUTSIDE}
    found |= {"kubernetes/pods.json": partial(_json, pods)} if pods else {}
    for container in containers(pods):
        read = partial(read_log, kubectl, namespace, container, f"--tail={_LOG_LINES}")
        found[f"logs/{container.place}.log"] = read
        if container.restarted:
            found[f"logs/{container.place}.previous.log"] = partial(read, "--previous")
    return found


def own_versions() -> str:
    """Of this command, its Python and the machine."""
    system = os.uname()  # `platform` starts a program to find out the same
    return f"slurmstack {version('slurmstack')}, Python {python_version()}, {system.sysname} {system.release}"


def _findings(kubectl: Kubectl, stack: Stack) -> str:
    """What `slurmstack doctor` would say."""
    cluster = take(kubectl, stack.config, DOCTOR)
    return _json(findings_as_data(cluster, diagnose(cluster)))


def _json(document: Any) -> str:
    return json.dumps(without_secrets(document), indent=1, ensure_ascii=False) + "\n"


def _objects(kubectl: Kubectl, kind: str, *where: str) -> str:
    return _json(kubectl.items(kind, *where))


def _slurm(kubectl: Kubectl, namespace: str, command: tuple[str, ...]) -> str:
    done = in_controller(kubectl, namespace, *command, seconds=2 * ANSWER_SECONDS)
    if done.returncode != 0:
        raise Failure(complaint(done))
    return done.stdout
