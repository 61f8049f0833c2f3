"""Where previews come from: a cluster that kubectl reaches, the Pulumi engine, or an earlier stack file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli import engine as engines
from cli import policy as policies
from cli.against import Comparison, against_recording, against_state, earlier
from cli.apply import explain, plan
from cli.apply import preview as compare
from cli.changes import Action, Change, differences, key
from cli.cloudless import without_cloud
from cli.effects import Effect, kind_of, name_of
from cli.errors import Refused
from cli.kubectl import Kubectl
from cli.manifests import is_foreign, manifests
from cli.preview.document import NOT_COMPARED, Preview, in_one_line, without_repeats
from cli.preview.steps import changes_of
from cli.reach import reach
from cli.recording import Recording, record
from cli.replacements import plain
from cli.safety.engines import of_kubectl, of_pulumi
from cli.safety.jobs import ask
from cli.stack import Stack
from cli.summary import summarize
from config.nebius import NebiusCloud

COMMAND = ("preview", "--refresh", "--diff")


def of_cluster(kubectl: Kubectl, stack: Stack) -> Preview:
    """What an apply with kubectl would do. Raises Failure if the cluster is not one that kubectl may change."""
    summary = summarize(stack.config)
    with ThreadPoolExecutor() as pool:  # Slurm is asked while the program loads and runs
        asked = ask(pool, kubectl, stack.config.cluster.namespace)
        policy = pool.submit(policies.planned_policy, kubectl, stack.config)
        try:
            planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        except Refused as refused:
            return Preview(
                stack=stack.name,
                against="cluster",
                summary=summary,
                refusals=(in_one_line(refused),),
                notes=(NOT_COMPARED,),
            )
        found = compare(kubectl, planned)
    return Preview(
        stack=stack.name,
        against="cluster",
        summary=summary,
        changes=tuple(found),
        effects=tuple(_stuck(found)),
        notes=planned.notes,
        policy=policy.result(),
        jobs=of_kubectl(kubectl, planned, found, asked),
    )


def _stuck(changes: Sequence[Change]) -> Iterator[Effect]:
    """What kubectl cannot apply: only failed jobs are deleted and made anew, everything else may hold something."""
    for change in changes:
        if change.action == "replace" and change.kind != "Job":
            yield Effect(
                action="replace",
                kind=change.kind,
                name=change.name,
                because=(),
                cost="",
                refused="a field differs that can never change, and kubectl makes nothing anew. Set it back, or delete "
                "the object by hand, with all that it holds",
            )


def of_engine(stack: Stack) -> Preview:
    """What an update by the Pulumi engine would do. Raises Failure with the engine's words if it cannot tell.

    What we refuse, the API server may refuse the engine's preview, too: then there is our reason, and no list.
    """
    comparison = against_state(stack, engines.export(stack))
    notes, refusals = leaving(stack, comparison.recording)
    code, printed = engines.read(stack, [*COMMAND, "--json"])
    untold = code != 0 and bool(comparison.refused or refusals)
    return Preview(
        stack=stack.name,
        against="engine",
        summary=summarize(stack.config),
        changes=() if untold else tuple(changes_of(printed, failed=code != 0)),
        effects=comparison.effects,
        notes=(*notes, NOT_COMPARED) if untold else notes,
        policy=policies.policy_of(stack),
        jobs=of_pulumi(stack, comparison),
        refusals=without_repeats(comparison.effects, refusals),
    )


def leaving(stack: Stack, recording: Recording) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an update by the engine means in a cluster that is there already, and why it is refused."""
    if isinstance(stack.config.cloud, NebiusCloud):
        return (), ()
    try:
        return explain(reach(stack), stack.config, recording), ()
    except Refused as refused:
        return (), (in_one_line(refused),)


def of_files(stack: Stack, file: Path) -> Preview:
    """What the change from an earlier stack file means. Asks no cluster and no cloud, and needs no keys."""
    old = earlier(file)
    before, after = (record(sections, stack=stack.name) for sections in (old.sections, stack.sections))
    comparison = against_recording(stack, before, after)
    return Preview(
        stack=stack.name,
        against="file",
        summary=summarize(stack.config),
        summary_before=summarize(old.config),
        changes=(*_others(comparison), *_objects(before, after, comparison)),
        effects=comparison.effects,
    )


def _objects(before: Recording, after: Recording, comparison: Comparison) -> Iterator[Change]:
    """The difference of the rendered Kubernetes objects. Generated keys are the same stand-ins on both sides."""
    old, new = (
        {key(item.document): item for item in manifests(without_cloud(recording)[0])} for recording in (before, after)
    )
    anew = {item.resource.urn for item in comparison.changes if item.action == "replace"}
    for at, manifest in new.items():
        if at not in old:
            yield Change(action="create", kind=manifest.kind, name=manifest.name)
            continue
        secret = manifest.kind == "Secret"
        properties = tuple(differences(old[at].document, manifest.document, secret=secret))
        if properties:
            action: Action = "replace" if manifest.urn in anew else "update"
            yield Change(action=action, kind=manifest.kind, name=manifest.name, properties=properties)
    for at, manifest in old.items():
        if at not in new:
            yield Change(action="delete", kind=manifest.kind, name=manifest.name)


def _others(comparison: Comparison) -> Iterator[Change]:
    """What only Pulumi can make: resources of a cloud, charts."""
    for change in comparison.changes:
        type_ = change.resource.type
        if is_foreign(type_):
            old, new = (plain(item.inputs) if item else {} for item in (change.before, change.resource))
            differing = differences(old, new, secret=False) if change.action in {"update", "replace"} else ()
            yield Change(
                action=change.action,
                kind=kind_of(type_),
                name=name_of(change.resource),
                properties=tuple(differing),
            )
