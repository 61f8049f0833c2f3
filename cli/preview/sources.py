"""Where previews come from: a cluster that kubectl reaches, the Pulumi engine, or an earlier stack file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cli.change.apply import plan
from cli.change.apply import preview as compare
from cli.change.both_ways import expected_effects, of_kubectl, of_pulumi, refuse_foreign_namespace
from cli.change.comparison import against_recording, against_state, of_export
from cli.change.effects import effects
from cli.change.jobs import queue_and_pods
from cli.engine import pulumi as engines
from cli.engine.steps import steps_of
from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.preview import policy as policies
from cli.preview.document import NOT_COMPARED, Preview
from cli.preview.notes import notes_of
from cli.preview.summary import summarize
from cli.program.recording import record
from cli.stack import Stack, open_stack
from config import ConfigError


def of_cluster(kubectl: Kubectl, stack: Stack) -> Preview:
    """What an apply with kubectl would do. Raises Failure if the cluster is not one that kubectl may change.

    What we refuse, the API server may refuse too: then there is our reason, and no list of changes.
    """
    with ThreadPoolExecutor() as pool:  # Slurm is asked while the program loads and runs
        asked = pool.submit(queue_and_pods, kubectl, stack.config.cluster.namespace)
        policy = pool.submit(policies.planned_policy, kubectl, stack.config)
        planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        first = Preview(
            stack=stack.name, against="cluster", summary=summarize(stack.config), effects=planned.effects,
            notes=notes_of(stack.config),
        )  # fmt: skip
        if first.refused:
            return replace(first, notes=(NOT_COMPARED,))
        found = tuple(compare(kubectl, planned))
    stuck = effects([item for item in found if item.action == "replace"], stack.config, old=(), way="kubectl")
    return replace(
        first,
        changes=found,
        effects=(*planned.effects, *stuck),
        policy=policy.result(),
        jobs=of_kubectl(kubectl, planned, found, asked),
    )


def of_engine(stack: Stack) -> Preview:
    """What an update by the Pulumi engine would do, in its own words.

    What we refuse, the API server may refuse the engine's preview, too: then there is our reason, and no list. Raises
    Failure with the engine's words if it cannot tell for any other reason.
    """
    state = engines.export(stack)
    refuse_foreign_namespace(stack)
    code, printed = engines.preview(stack)
    policy = policies.policy_of(stack)
    preview = Preview(stack=stack.name, against="engine", summary=summarize(stack.config), policy=policy)
    if code != 0:
        comparison = against_state(stack, state)
        refused = replace(preview, effects=tuple(expected_effects(stack, comparison)), notes=(NOT_COMPARED,))
        if refused.refused:
            return replace(refused, jobs=of_pulumi(stack, comparison.changes, comparison.resources))
    steps = steps_of(printed, failed=code != 0)
    return replace(
        preview,
        changes=steps.changes,
        effects=effects(steps.changes, stack.config, old=of_export(state)),
        notes=(*notes_of(stack.config), *(f"Pulumi: {warning}" for warning in steps.warnings)),
        jobs=of_pulumi(stack, steps.changes, steps.resources),
    )


def of_files(stack: Stack, file: Path) -> Preview:
    """What the change from an earlier stack file means. Asks no cluster and no cloud, and needs no keys."""
    old = _earlier(file)
    before, after = (record(sections, stack=stack.name) for sections in (old.sections, stack.sections))
    comparison = against_recording(stack, before, after)
    return Preview(
        stack=stack.name,
        against="file",
        summary=summarize(stack.config),
        summary_before=summarize(old.config),
        # Keys are made once, whatever the stack file says.
        changes=tuple(item for item in comparison.changes if not item.resource.type.startswith("random:")),
        effects=comparison.effects,
        notes=notes_of(stack.config),
    )


def _earlier(file: Path) -> Stack:
    """An earlier version of a stack file. Raises Failure if it is not a valid one."""
    try:
        return open_stack(file)
    except ConfigError as error:
        raise Failure(
            f"--against {file}: {error.problems[0].where}: {error.problems[0].message}",
            hint="name a version of the stack file that this version of slurmstack accepts",
            code=USAGE,
        ) from error
