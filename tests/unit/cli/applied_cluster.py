"""A cluster that remembers what was applied and deleted."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

from cli.kubectl import Kubectl


@dataclass(frozen=True, kw_only=True)
class FakeCluster(Kubectl):
    """Has some objects, and remembers what was deleted."""

    program: str = "kubectl"
    context: str = "test"
    kubeconfig: str | None = None
    items_there: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    applied: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        del check
        found: list[dict[str, Any]] = []
        if arguments[0] == "delete":
            self.deleted.append(" ".join(arguments[1:]))
        elif arguments[0] == "apply":
            self.applied.append(arguments)
        elif arguments[0] == "get" and stdin is not None:
            wanted = {(item["kind"], item["metadata"]["name"]) for item in json.loads(stdin)["items"]}
            found = [item for item in self.items_there if (item["kind"], item["metadata"]["name"]) in wanted]
        elif arguments[0] == "get":
            kinds = next(word for word in arguments[1:] if not word.startswith("-")).split(",")
            found = [item for item in self.items_there if item["kind"].lower() in kinds]
        return subprocess.CompletedProcess(arguments, 0, json.dumps({"kind": "List", "items": found}), "")


def thing(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": OURS}, **more}


OURS = {"app.kubernetes.io/part-of": "slurmstack", "app.kubernetes.io/instance": "slurm"}
