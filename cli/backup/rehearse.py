"""A rehearsal: a Job in the cluster puts a backup into daemons of its own, and compares (images/backup/rehearse.py)."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cli.backup.jobs import answer_in, run_job
from cli.kubectl.client import FIELD_MANAGER, Kubectl
from cli.stack import Stack
from config import ClusterConfig, load_config
from local.report import Report, duration_text
from slurm.conf import FILES, JOB_SUBMIT, PMIX, render
from slurm.images import DEFAULT_REGISTRY, image_reference, image_tags
from slurm.names import BACKUPS, REHEARSE

_READ = {*FILES, PMIX, JOB_SUBMIT} - {"plugstack.conf"}
"""Files that slurmctld reads; the plugin of the last is in other images."""


def config_for(stack: Stack, version: str, tag: str) -> ClusterConfig:
    """The cluster under another Slurm release, whose images have this tag, or the one that they are built with."""
    made: dict[str, Any] = copy.deepcopy(dict(stack.sections))
    made["slurm"] = {**made.get("slurm", {}), "version": version}
    images = {key: value for key, value in made.get("images", {}).items() if key not in {"tag", "digests"}}
    made["images"] = {**images, **({"tag": tag} if tag else {})}
    return load_config(made)


def rehearse(
    kubectl: Kubectl, config: ClusterConfig, parts: Sequence[str], at: str, report: Report, *, upgrade: bool
) -> dict[str, Any]:
    """Rehearse a backup; how it ended, for JSON. `at` as for a restore. Raises Failure where it could not be tried.

    `upgrade`: with the release of this configuration, not with that of the cluster.
    """
    namespace = config.cluster.namespace
    files = {name: text for name, text in render(config).items() if name in _READ}
    told = {"WHAT": " ".join(parts), "AT": at, "FILES": json.dumps(files)}
    registry, tags = config.images.registry or DEFAULT_REGISTRY, image_tags(config.slurm.version, config.images)
    image = image_reference("database", registry=registry, tag=tags["database"]) if upgrade else ""
    found = answer_in(run_job(kubectl, namespace, REHEARSE, report, env=told, image=image))
    if found["ok"] and not upgrade:
        _keep_time(kubectl, namespace)
    return {"backup": found.pop("backup"), "slurm": config.slurm.version, **found}


def _keep_time(kubectl: Kubectl, namespace: str) -> None:
    """Write when it ended well to where `backup list` and kube-state-metrics see it.

    That is a CronJob that never runs by itself: its Jobs are made by commands, so that no other time is there.
    """
    done = {"status": {"lastSuccessfulTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    ours = ("-n", namespace, f"--field-manager={FIELD_MANAGER}", "--type=merge", "-p")
    kubectl.run("patch", "cronjob", BACKUPS, "--subresource=status", *ours, json.dumps(done))


def text(outcome: dict[str, Any]) -> str:
    """For people."""
    end, took = "is as it was" if outcome["ok"] else "is NOT as it was", dict(outcome["seconds"])
    return "\n".join([
        f"backup {outcome['backup']} under Slurm {outcome['slurm']} {end} ({duration_text(took.pop('total'))})",
        *(
            f"  {part:<9} {', '.join(f'{number} {what}' for what, number in counted.items())}"
            for part, counted in outcome["found"].items()
        ),
        *(f"  {name} answered after {duration_text(seconds)}" for name, seconds in took.items()),
        *(f"  problem: {line}" for line in outcome["problems"]),
    ])  # fmt: skip
