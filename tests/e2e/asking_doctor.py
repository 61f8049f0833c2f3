"""`slurmstack doctor`, asked by tests."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until


def doctor(slurm: SlurmOnKubernetes, *arguments: str) -> tuple[dict[str, Any], int]:
    """What it prints as JSON, and its exit status. Again where it had no time to read all: lanes share the machine."""

    def look() -> tuple[dict[str, Any], int] | None:
        done = slurmstack("doctor", *arguments, "--json", "--config", str(slurm.file), check=False)
        if not done.stdout and "no answer within" in done.stderr:
            return None
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        return None if found["unread"] else (found, done.returncode)

    found = wait_until(look, "each part was read")
    assert found is not None
    return found


def first(slurm: SlurmOnKubernetes, *arguments: str) -> dict[str, Any]:
    """The finding that it names first."""
    found, code = doctor(slurm, *arguments)
    assert code == 1, found
    return dict(found["findings"][0])


def findings(slurm: SlurmOnKubernetes, *arguments: str) -> list[dict[str, Any]]:
    """What it finds, but for containers that were started again: one probe that came late on a busy machine is told
    for long after, and says nothing of what a test has done.
    """
    return [item for item in doctor(slurm, *arguments)[0]["findings"] if " restarts: " not in item["cause"]]


def await_nothing_found(slurm: SlurmOnKubernetes) -> None:
    """Wait until nothing is found any more."""
    seen: list[dict[str, Any]] = []

    def nothing() -> bool:
        seen[:] = findings(slurm)
        return not seen

    wait_until(nothing, lambda: f"nothing is found: {seen}")
