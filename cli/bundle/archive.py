"""The archive: what goes into it, none of its secrets, and a list of what is in it and what is not.

Secrets that are taken out of text: the values of the namespace's Secrets, and what looks like a secret.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import version
from platform import python_version
from typing import IO, Any

import yaml

from cli.doctor.cluster.findings import as_data as findings_as_data
from cli.doctor.cluster.rules import diagnose
from cli.errors import Failure
from cli.kubectl.client import ANSWER_SECONDS, Kubectl, complaint, in_controller, refuse_no_namespace
from cli.logs.lines import containers, read_log, side_by_side
from cli.stack import Stack
from cli.status.questions import DOCTOR
from cli.status.read import read_status
from cli.status.snapshot import take
from cli.text import plain
from config.load import read_document

REMOVED = "<removed>"

SHORTEST = 8
"""Bytes of a value that is looked for: shorter ones stand in many words."""

_COMMON = frozenset({
    "changeme", "container", "controller", "database", "default", "hostname", "kubernetes", "localhost", "namespace",
    "password", "postgres", "slurm_acct_db", "slurmctld", "slurmdbd", "username",
})  # fmt: skip
"""Values that are no secrets, and without which nobody could read the rest."""

_SECRET_NAME = re.compile(
    r"(?i)(?:pass|password|passwd|passphrase|passcode|authtok|token|secure|secret|encryptionsalt|encryptedkey"
    r"|credentials?|(?:private|secret|access|api|signing|munge|jwt|shared|encryption)[_.-]?key)$"
)
"""The end of keys whose values are secrets."""

_REFERENCE = re.compile(r"(?i)(?:pull|password|key|token|tls)[_-]?secret$")
"""The end of keys whose values are names of Secrets."""

_NO_VALUE = re.compile(
    r"(?i)(?:true|false|null|none|yes|no|~|[|>]-?|\(null\)|[\[{]+)?[\]})]*|<removed.*|(?-i:(?:/[a-z0-9_.-]+)+)"
    r"|[\w$-]+:[x*!]?:\d+:[\s\S]*"
)
"""Words, what was removed already, names of files (those of daemons' keys, say), and what a file `passwd` has."""

_ASSIGNED = re.compile(
    r"(?i)(?P<name>(?:pass(?:word|wd|phrase|code)?|authtok|(?<!pull[_-])secret|token"
    r"|(?:private|secret|access|api|signing)[_.-]?key)"
    r"\\*[\"']?[ \t]*[=:][ \t]*)"
    r"(?P<value>\\{1,16}\"(?:(?!\\{1,16}\").){1,4000}\\{1,16}\"|\"(?:[^\"\\\n]|\\.)+\"|'[^'\n]+'|[^\s\"',;&\\]+)"
)
"""`password=...`, also quoted, and quoted within JSON."""

_HOOK = re.compile(r"https?://[^\s/\"'<>]+/[^\s\"'<>{}\[\],]{8,}")
"""Whose path may be all that one needs to know."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----(?:(?:(?!-----BEGIN)[\s\S]){0,20000}?-----END \1PRIVATE KEY-----"
            r"|(?:\\[nrt]|[A-Za-z0-9+/=\s])*)"
        ),
        "<removed: private key>",
    ),
    (re.compile(r"eyJ(?:(?!eyJ)[\w-]){5,}\.[\w-]{5,}\.[\w-]*"), "<removed: token>"),
    (re.compile(r"(?i)(bearer\s+)[\w.~+/-]{16,}=*"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)(authorization\\*[\"']?\s*[:=]\s*\\*[\"']?\w+\s+)[^\s\"'\\]+"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)(--(?:pass(?:word)?|token|secret|api-key)[ \t]+)(?!-)[^\s\"']+"), rf"\1{REMOVED}"),
    (re.compile(r"([a-z][a-z0-9+.-]{0,20}://[^\s:/@\"']*:)[^\s/@\"']+(@)"), rf"\1{REMOVED}\2"),
)


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Replaces what is secret."""

    known: tuple[tuple[str, str], ...] = ()
    """(text, what comes in its place), the longest first."""

    def __call__(self, text: str) -> str:
        """The text without secrets. What is known goes first, with the name of its Secret."""
        for secret, marker in self.known:
            if secret in text:
                text = text.replace(secret, marker)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return _ASSIGNED.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if _NO_VALUE.fullmatch(value.strip("\\\"'")):
        return match[0]
    mark = value[: len(value) - len(value.lstrip("\\\"'"))]
    return f"{match['name']}{mark}{REMOVED}{mark}"


def redactor(secrets: Iterable[Mapping[str, Any]]) -> Redactor:
    """One that knows the values of these Secrets, as Kubernetes has them."""
    known: dict[str, str] = {}
    for secret in secrets:
        for key, encoded in (secret.get("data") or {}).items():
            for form in _forms(base64.b64decode(encoded)):
                known.setdefault(form, f"<removed: secret {secret['metadata']['name']}/{key}>")
    return Redactor(known=tuple((text, known[text]) for text in sorted(known, key=len, reverse=True)))


def _forms(value: bytes) -> Iterator[str]:
    """A value as it may stand in a text: whole and by lines, plain, in Base64, as JSON and as JSON within JSON."""
    for piece in {value, value.strip(), *(line.strip() for line in value.splitlines()), *_inside(value)}:
        plain = piece.decode("utf-8", "replace")
        if len(piece) >= SHORTEST and plain.lower() not in _COMMON:
            yield from (plain, base64.b64encode(piece).decode().rstrip("="))
            once = json.dumps(plain, ensure_ascii=False)[1:-1]
            yield from (once, json.dumps(once, ensure_ascii=False)[1:-1])


def _inside(value: bytes) -> Iterator[bytes]:
    """What is secret in a file that is a Secret's value, as `alertmanager.yml`: passwords, and addresses of hooks."""
    text = value.decode("utf-8", "replace")
    for match in _ASSIGNED.finditer(text):
        if not _NO_VALUE.fullmatch(secret := match["value"].strip("\\\"'")):
            yield secret.encode()
    yield from (found.encode() for found in _HOOK.findall(text))


def without_secrets(value: Any, *, name: str = "") -> Any:
    """A document without what its own keys call a secret: `secure:`, `password:`, and variables of such names."""
    if isinstance(value, Mapping):
        variable = value.get("name")
        called = {"value": variable} if isinstance(variable, str) and isinstance(value.get("value"), str) else {}
        return {key: without_secrets(item, name=called.get(key, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, name=name) for item in value]
    named = _SECRET_NAME.search(name) and not _REFERENCE.search(name) and not _NO_VALUE.fullmatch(str(value))
    return REMOVED if name == "secure" or (isinstance(value, str) and named) else value


# ---------------------------------------------------------------- what is in it

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
