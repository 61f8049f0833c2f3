"""A configuration as the agent takes it: changed, and what became of it."""

from __future__ import annotations

import json
from typing import Any

from images.controller.configuration import config_hash
from tests.slurm.minimal import with_lines
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox


def status(cluster: SlurmSandbox) -> dict[str, Any]:
    """The agent's answer, which one that has just been started gives a moment later."""
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8817/config').read().decode())"
    answers: list[dict[str, Any]] = []

    def asked() -> bool:
        done = cluster.run(["python3", "-c", ask])
        answers.extend([json.loads(done.stdout)] if done.returncode == 0 else [])
        return bool(answers)

    wait_until(asked, cluster.logs)
    return answers[0]


def change(cluster: SlurmSandbox, files: dict[str, str]) -> dict[str, Any]:
    """Change the configuration and return the agent's status when it has decided."""
    cluster.set_config(files)
    wanted = config_hash(files)

    def decided() -> bool:
        found = status(cluster)
        return found["active"] == wanted or (found["rejected"] or {}).get("hash") == wanted

    wait_until(decided, lambda: f"a decision about {wanted}: {cluster.controller.log('config-agent')}")
    return status(cluster)


def activate(cluster: SlurmSandbox, files: dict[str, str]) -> None:
    """Put a configuration in force, as `up` does."""
    found = change(cluster, files)
    assert found["active"] == config_hash(files), f"{found}\n{cluster.logs()}"


def edited(files: dict[str, str], line: str) -> dict[str, str]:
    """`files` with a line in slurm.conf, in place of the one about the same key."""
    return {**files, "slurm.conf": with_lines(files["slurm.conf"], line)}


def kill_programs(cluster: SlurmSandbox, *names: str) -> None:
    """Kill programs beside slurmctld, and wait until they have gone: their ports are free then."""
    for name in names:
        pattern = f"[{name[0]}]{name[1:]}"
        cluster.run(f"pkill -KILL -f {pattern}; while pgrep -f {pattern}; do sleep 0.02; done")
