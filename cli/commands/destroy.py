"""The command `destroy`: the cluster goes in the order that hurts no job, its data stays unless told otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from cli.access.reach import reach_if_made, whereabouts
from cli.backup.restore import refuse_restoring
from cli.change.effects import refuse
from cli.change.engine_plan import compared, of_export
from cli.change.jobs import jobs_destroyed, lines, refuse_lost_jobs
from cli.change.lock import held
from cli.change.owner import (
    AFTERWARDS,
    KEPT,
    KEPT_OF,
    ROTATING,
    Kept,
    cluster_name_of,
    data_of,
    has_homes,
    is_put_back,
    jail_root_of,
    refuse_foreign,
    refuse_other_stack,
    refuse_takeover,
    release_of,
)
from cli.change.plan import KINDS, OPERATED, OPERATOR, RIGHTS_OUTSIDE
from cli.commands.cluster import EngineOption, YesOption, choose, require_terminal
from cli.commands.options import ConfigOption, is_typed
from cli.engine import pulumi as engines
from cli.errors import Failure, Refused
from cli.kubectl.client import (
    FIELD_MANAGER,
    OWNERS,
    Kubectl,
    cluster_labels,
    complaint,
    in_controller,
    is_forbidden,
    is_unknown,
    labels_of,
    message,
    slurm,
)
from cli.preview.document import effect_lines
from cli.stack import Stack, open_stack
from cli.text import print_lines
from config.sections.cloud import NebiusCloud
from local import teardown
from local.report import Report, open_report
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, LOGIN

POLL = 0.5
"""Seconds between two looks at the cluster."""

WORKLOADS = ("cronjob", "statefulset", "deployment", "daemonset", "job", "podtemplate")
"""Kinds whose objects have pods, or make some that have. A DaemonSet is an earlier version's."""

GONE_SECONDS = 300.0
"""Seconds that objects may take to go: a load balancer in a cloud goes before its Service."""

PATIENCE = 10
"""Seconds that slurmctld may take to show its queue: scancel alone would try for many minutes."""


def destroy(
    config: ConfigOption = None,
    *,
    yes: YesOption = False,
    engine: EngineOption = "auto",
    kill_jobs: Annotated[
        bool, typer.Option("--kill-jobs", help="Cancel all jobs instead of waiting for them.")
    ] = False,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Delete data and keys too, for good. It may come later.")
    ] = False,
) -> None:
    """Delete the cluster, but its data and keys: running jobs are waited for first.

    The jail with all homes, mounts, the job queue, accounting's records, metrics and keys stay in the namespace. The
    next `up` goes on with them: jobs that waited start, job ids, host keys and tokens are as before. --delete-data
    deletes them for good. Backups are never deleted. Pulumi's engine can keep neither claims nor keys: where data is
    on volumes that go with their claims, it is refused without --delete-data.

    Refuses, without --kill-jobs, where jobs could outlast drain_timeout of their pool, or would be lost with the queue,
    and where a restore was not finished, unless the data goes, too.
    What deletes data is refused where the stack is protected (slurmstack:protect, on by default for other than the
    local cluster).

    Examples:
      slurmstack destroy

      slurmstack destroy --delete-data
    """
    stack = open_stack(config)
    by_pulumi = choose(stack, engine) == "pulumi"
    _refuse_protected(stack, by_pulumi=by_pulumi, delete_data=delete_data)
    if isinstance(stack.config.cloud, NebiusCloud):
        lost = compared(stack, of_export(engines.export(stack)), [])
        print_lines(effect_lines(lost.effects))
        refuse(lost.effects)
    kubectl = reach_if_made(stack)
    order = kubectl and _Order(
        kubectl=kubectl, stack=stack, by_pulumi=by_pulumi, kill_jobs=kill_jobs, delete_data=delete_data
    )
    if order:
        order.refuse_others()
        order.refuse_lost_data()
        order.judge()
    if not yes and not _is_agreed(stack, kubectl, delete_data=delete_data):
        return
    report = open_report()
    if order:
        order.carry_out(report)
    if by_pulumi and (status := engines.run(stack, ["destroy", "--yes"])) != 0:
        raise typer.Exit(status)
    if by_pulumi and kubectl and not delete_data:
        typer.echo("what lies on file systems stays there for the next `up`; the keys are gone, and it makes new ones")
    if delete_data and stack.config.cloud.is_local:
        with report.step("Deleting the files of the volumes"):
            problems = teardown.discard()
        stay = [name for name in teardown.remaining() if name.startswith(f"{stack.config.cluster.namespace}/")]
        for problem in [*problems, *(f"{name} is mounted by somebody, and its files stay" for name in stay)]:
            report.info(f"warning: {problem}")


def _refuse_protected(stack: Stack, *, by_pulumi: bool, delete_data: bool) -> None:
    """Raise Refused if the stack says that its data must stay, and it would not."""
    if stack.config.protects_data and (by_pulumi or delete_data):
        and_up = ", run `up`" if by_pulumi else ""  # Pulumi's engine keeps in its state what is protected
        raise Refused(
            "this stack is protected, and this would delete the jail with all users' files, the job queue and the keys",
            hint=f"if that is wanted, set `slurmstack:protect: false` in the stack file{and_up}, then this again",
        )


def _is_agreed(stack: Stack, kubectl: Kubectl | None, *, delete_data: bool) -> bool:
    """Ask, and name what is lost."""
    namespace = stack.config.cluster.namespace
    typer.echo(f"This deletes the cluster in {whereabouts(stack, kubectl)}.")
    if delete_data and kubectl:
        lost = data_of(kubectl, namespace).lines
        typer.echo("\n".join(("Lost for good:", *(f"  {line}" for line in lost))))
    require_terminal()
    return is_typed("All of this goes", namespace) if delete_data else typer.confirm("Destroy it?")


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Ids of running jobs; empty if slurmctld does not answer."""
    done = slurm(kubectl, namespace, "squeue", "--noheader", "--states=running,suspended,completing", "--format=%A")
    return done.split()


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What somebody has asked for, of a cluster that may be there."""

    kubectl: Kubectl
    stack: Stack
    by_pulumi: bool
    kill_jobs: bool
    delete_data: bool

    @property
    def namespace(self) -> str:
        return self.stack.config.cluster.namespace

    @property
    def ours(self) -> tuple[str, ...]:
        return "-n", self.namespace, "-l", cluster_labels(self.namespace)

    def refuse_others(self) -> None:
        """Raise Failure if the namespace is not that of a cluster which this engine made, and this stack."""
        present = next(iter(self.kubectl.items("namespace", self.namespace, OWNERS)), None)
        (refuse_foreign if self.by_pulumi else refuse_takeover)(present)
        refuse_other_stack(self.kubectl, present, self.stack.name)
        if present is None:
            typer.echo(f"There is no namespace {self.namespace}: only what is left outside of it goes.")

    def refuse_lost_data(self) -> None:
        """Raise Refused if Pulumi's engine would delete data, and nobody has said that it may."""
        if not self.by_pulumi or self.delete_data:
            return
        found = data_of(self.kubectl, self.namespace).volumes
        if lost := [claim for claim, volume in found.items() if not self._is_retained(volume)]:
            raise Refused(
                "Pulumi's engine deletes the namespace with its claims and keys, and this data with them: "
                + ", ".join(lost),
                hint="save what is needed (docs/backups.md), then add --delete-data",
            )

    def _is_retained(self, volume: str) -> bool:
        """Whether the files stay where they are when claim and volume are deleted: a file system, or a directory."""
        found = self.kubectl.items("persistentvolume", volume) if volume else []
        return any(item["spec"].get("persistentVolumeReclaimPolicy") == "Retain" for item in found)

    def judge(self, *, again: bool = False) -> None:
        """Print what becomes of the jobs. Raises Refused if one would end or be lost, but with `kill_jobs`.

        And Failure in the midst of a restore, which would end with the workloads that know of it.
        """
        if not self.delete_data:
            # Else the next `up` would start Slurm on what is half put back, and nobody would be told.
            refuse_restoring(self.kubectl, self.namespace)
        keeps_queue = not self.delete_data and (not self.by_pulumi or self.stack.config.queue_outlives_destroy)
        jobs = jobs_destroyed(self.kubectl, self.namespace, keeps_queue=keeps_queue)
        if self.kill_jobs:
            if not again and not jobs.unread and jobs.running + jobs.pending:
                typer.echo(f"jobs: {jobs.running} running, {jobs.pending} pending; all are cancelled")
            return
        if not again or jobs.refused:
            print_lines(lines(jobs))
        refuse_lost_jobs(jobs, "destroy")

    def carry_out(self, report: Report) -> None:
        """Let the workers leave when their jobs have ended, then end all other pods, and delete what is to go.

        Where Pulumi does that, under a lock of its own, it has nothing to wait for. Interrupted, it can be run again.
        """
        if self.by_pulumi:  # its own lock is taken by `pulumi destroy`, after all pods have ended
            engines.refuse_locked(self.stack)
        with nullcontext() if self.by_pulumi else held(self.kubectl, self.namespace, "destroy", report):
            # Jobs may have come while a question waited, or somebody else who had the lock.
            self.judge(again=True)
            data = data_of(self.kubectl, self.namespace)
            keeps = bool(data.volumes) and not self.delete_data and not self.by_pulumi
            retained = [name for name in data.volumes.values() if self.delete_data and self._is_retained(name)]
            if keeps:
                self._note_identity()
            if self.kill_jobs:
                self._cancel_all(report)
            with report.step("Waiting for worker nodes to leave") as step:
                self._delete_workloads("-l", "slurmstack/pool")
                worker = ("pod", "-n", self.namespace, "-l", "app.kubernetes.io/component=worker")
                self._until_gone(
                    lambda: self.kubectl.items(*worker),
                    lambda names: step.progress(
                        0, 0, f"{names}, {len(running_jobs(self.kubectl, self.namespace))} running jobs"
                    ),
                )
            if keeps or self.by_pulumi:
                with report.step("Ending all other pods") as step:
                    self._delete_workloads(*self.ours[2:])
                    self._until_gone(
                        lambda: self.kubectl.items("pod", *self.ours), lambda names: step.progress(0, 0, names)
                    )
            if self.by_pulumi:
                self._set_files_aside()
            elif keeps:
                with report.step(f"Deleting all but data and keys in namespace {self.namespace}"):
                    self._delete_all_but_data(data)
            else:
                with report.step(f"Deleting namespace {self.namespace}"):
                    self._delete_namespace()
        if keeps:
            kept = (f"kept in namespace {self.namespace}:", *(f"  {line}" for line in data.lines), AFTERWARDS)
            typer.echo("\n".join(kept))
        if retained and not self.stack.config.cloud.is_local:
            typer.echo(f"kept all the same, for so their volume says: {', '.join(retained)}")

    def _note_identity(self) -> None:
        """Write down whose state it is, while that can be read: slurmctld takes no other cluster's, or release's."""
        found = self.kubectl.items("configmap", CONFIG_MAP, "-n", self.namespace)
        sets = {item["metadata"]["name"]: item for item in self.kubectl.items("statefulset", "-n", self.namespace)}
        if found and CONTROLLER in sets:
            # What a restore has left stopped may be of an older release than its pods would be.
            release = "" if is_put_back(sets[CONTROLLER]) else release_of(sets[CONTROLLER])
            identity: dict[str, object] = {"cluster_name": cluster_name_of(found[0]), "slurm": release}
            if LOGIN in sets:
                identity |= {"root": jail_root_of(sets[LOGIN]), "homes": has_homes(sets[LOGIN])}
            self._note("annotate", "namespace", self.namespace, "--overwrite", f"{KEPT_OF}={json.dumps(identity)}")

    def _note(self, *arguments: str) -> None:
        self.kubectl.run(*arguments, f"--field-manager={FIELD_MANAGER}")

    def _cancel_all(self, report: Report) -> None:
        """Cancel all jobs; where slurmctld does not answer, say so."""
        with report.step("Cancelling all jobs"):
            every = ("squeue", "--noheader", "--format=%A")
            asked = in_controller(self.kubectl, self.namespace, *every, seconds=PATIENCE)
            if asked.returncode == 0:
                # Those that wait first, or they start where others end.
                for state in ("pending", "running", "suspended"):
                    in_controller(self.kubectl, self.namespace, "scancel", f"--state={state}", seconds=600)
        if asked.returncode != 0:
            report.info(
                f"no job was cancelled, for slurmctld does not answer ({complaint(asked)}): "
                "nodes without a job leave all the same, others wait for theirs as long as drain_timeout allows"
            )

    def _delete_workloads(self, *selector: str) -> None:
        """Let everything go that has pods. Returns before they have ended."""
        self._delete(",".join(WORKLOADS), "-n", self.namespace, *selector)

    def _delete(self, *what: str) -> None:
        self.kubectl.run("delete", *what, "--ignore-not-found", "--wait=false")

    def _until_gone(
        self, look: Callable[[], Sequence[Mapping[str, Any]]], tell: Callable[[str], None] | None = None
    ) -> None:
        """Wait until nothing is found; GONE_SECONDS at most where nobody is told what there is."""
        deadline = time.monotonic() + GONE_SECONDS
        while left := look():
            names = ", ".join(sorted(str(item["metadata"]["name"]) for item in left)[:8])
            if tell is not None:
                tell(f"{len(left)} left ({names})")
            elif time.monotonic() > deadline:
                kind = left[0]["kind"].lower()
                raise Failure(
                    f"still there after {GONE_SECONDS:g} s: {kind} {names}",
                    hint=f"`{self.kubectl.shown} describe -n {self.namespace} {kind}` says why; run this again then",
                )
            time.sleep(POLL)

    def _set_files_aside(self) -> None:
        """When all pods are ending, before anybody can make the cluster anew."""
        if self.delete_data and self.stack.config.cloud.is_local:
            teardown.set_aside(self.namespace)

    def _delete_all_but_data(self, data: Kept) -> None:
        """Delete what the stack has made: all with its labels but claims, and the keys, which have none."""
        kinds = ",".join(kind for kind in KINDS if kind != "persistentvolumeclaim")
        self._delete(kinds, *self.ours)
        for kind in OPERATED:
            done = self.kubectl.run("delete", f"{kind}.{OPERATOR}", *self.ours, "--wait=false", check=False)
            if done.returncode != 0 and not is_unknown(done) and not is_forbidden(done):
                raise Failure(message(done.stderr), hint="run this again: data is not touched")
        self._delete(RIGHTS_OUTSIDE, *self.ours[2:])
        self._until_gone(lambda: self.kubectl.items(kinds, *self.ours))
        if data.keys:  # all who had an older key have ended
            self.kubectl.run("annotate", "secret", GENERATED, "-n", self.namespace, f"{ROTATING}-")
        # So that `kubectl get namespace -l slurmstack/kept` finds it.
        self._note("label", "namespace", self.namespace, f"{KEPT}=true", "--overwrite")

    def _delete_namespace(self) -> None:
        """Delete all objects, those in no namespace first: once the namespace has gone, others may make it anew."""
        namespaces = self.kubectl.items("namespace", self.namespace)
        static = [
            item
            for item in self.kubectl.items("persistentvolume")
            if item["spec"].get("claimRef", {}).get("namespace") == self.namespace
            and labels_of(item).get("app.kubernetes.io/part-of") == "slurmstack"
        ]
        # Kubernetes comes to the namespace after five seconds, and to one in which it then finds pods or claims again
        # only after five more, or after half of the pods' longest grace period.
        self._delete_workloads(*self.ours[2:])
        self._set_files_aside()
        self._delete("persistentvolumeclaim", *self.ours)
        if static:  # they stay until their claims have gone
            self._delete("persistentvolume", *(str(item["metadata"]["name"]) for item in static))
        self._delete(RIGHTS_OUTSIDE, *self.ours[2:])
        self._delete("namespace", self.namespace)
        for item in (*namespaces, *static):
            self._until_gone(partial(self._same, item))

    def _same(self, item: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The object as long as it is that one: another of its name may be made at once."""
        found = self.kubectl.items(item["kind"].lower(), item["metadata"]["name"])
        return [each for each in found if each["metadata"]["uid"] == item["metadata"]["uid"]]
