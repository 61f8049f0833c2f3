"""kubectl, in the place of `cli.kubectl.client.Kubectl`: one that answers as told, and one that has objects."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

from cli.change.lock import Lock
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from local.report import PlainReport

OURS = {"app.kubernetes.io/part-of": "slurmstack", "app.kubernetes.io/instance": "slurm"}


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    """As kubectl prints several objects."""
    return {"kind": "List", "items": list(items)}


def thing(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """An object of our cluster."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": OURS}, **more}


def applied(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """The same, as an apply has made it."""
    item = thing(kind, name, **more)
    managers = [{"manager": "slurmstack", "operation": "Apply"}]
    return {**item, "metadata": {**item["metadata"], "managedFields": managers}}


@dataclass(frozen=True, kw_only=True)
class PlayedKubectl(Kubectl):
    """Of the context `test`; what it answers is up to those that are made from it."""

    program: str = "kubectl"
    context: str = "test"
    kubeconfig: str | None = None


@dataclass(frozen=True, kw_only=True)
class FakeKubectl(PlayedKubectl):
    """Answers from a list of (words that must be in the command line, output, error)."""

    answers: list[tuple[set[str], Any, str]] = field(default_factory=list)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del stdin
        for words, output, error in self.answers:
            if words <= set(arguments):
                if error and check:
                    raise Failure(error)
                text = output if isinstance(output, str) else json.dumps(output)
                return subprocess.CompletedProcess(arguments, 1 if error else 0, text, error)
        raise AssertionError(f"unexpected kubectl {arguments}")


class UpLock(Lock):
    """The lock of an `up` of a test."""

    def __init__(self, kubectl: Kubectl) -> None:
        super().__init__(kubectl, "slurm", "up", PlainReport(), 1)


@dataclass(frozen=True, kw_only=True)
class FakeCluster(PlayedKubectl):
    """Has some objects, and remembers what was applied and deleted."""

    items_there: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    applied: list[tuple[str, ...]] = field(default_factory=list)
    documents: list[list[dict[str, Any]]] = field(default_factory=list)
    """What each of them was given."""

    @property
    def sent(self) -> list[list[str]]:
        """The kinds in each list that was applied."""
        return [[item["kind"] for item in given] for given in self.documents]

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del check
        found: list[dict[str, Any]] = []
        if arguments[0] == "delete":
            self.deleted.append(" ".join(arguments[1:]))
        elif arguments[0] == "apply":
            self.applied.append(arguments)
            given = json.loads(stdin or '{"items": []}')
            self.documents.append(given.get("items", [given]))
            found = self.documents[-1] if "--dry-run=server" in arguments else []
        elif arguments[0] == "get" and stdin is not None:
            wanted = {(item["kind"], item["metadata"]["name"]) for item in json.loads(stdin)["items"]}
            found = [item for item in self.items_there if (item["kind"], item["metadata"]["name"]) in wanted]
        elif arguments[0] == "get":
            kinds = next(word for word in arguments[1:] if not word.startswith("-")).split(",")
            if "--raw" in arguments:
                kinds = [kinds[0].partition("?")[0].rpartition("/")[2].removesuffix("s")]
            found = [item for item in self.items_there if item["kind"].lower() in kinds]
        return subprocess.CompletedProcess(arguments, 0, json.dumps(listed(*found)), "")
