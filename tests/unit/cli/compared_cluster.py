"""A cluster whose objects are compared with those of a stack."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

from cli.errors import Failure
from cli.kubectl import Kubectl


@dataclass(frozen=True, kw_only=True)
class FakeKubectl(Kubectl):
    """Answers from a list of (words that must be in the command line, output, error)."""

    program: str = "kubectl"
    context: str = "test"
    kubeconfig: str | None = None
    answers: list[tuple[set[str], Any, str]] = field(default_factory=list)

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        del stdin
        for words, output, error in self.answers:
            if words <= set(arguments):
                if error and check:
                    raise Failure(error)
                text = output if isinstance(output, str) else json.dumps(output)
                return subprocess.CompletedProcess(arguments, 1 if error else 0, text, error)
        raise AssertionError(f"unexpected kubectl {arguments}")


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "items": list(items)}
