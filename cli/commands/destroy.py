"""The command `destroy`: the cluster goes, its data stays unless told otherwise."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated

import typer

from cli.access.reach import reach_if_made, whereabouts
from cli.backup.restore import refuse_restoring
from cli.change.destroy import AFTERWARDS, Kept, data_of, destroy_cluster, is_retained
from cli.change.effects import refuse
from cli.change.jobs import jobs_destroyed, lines, refuse_lost_jobs
from cli.change.lock import held
from cli.change.owner import refuse_foreign, refuse_other_stack, refuse_takeover
from cli.commands.cluster import EngineOption, YesOption, choose, require_terminal
from cli.commands.options import ConfigOption
from cli.engine import pulumi as engines
from cli.engine.plan import removal
from cli.errors import Refused
from cli.kubectl.client import OWNERS, Kubectl
from cli.preview.document import effect_lines
from cli.stack import Stack, open_stack
from cli.text import print_lines
from config.sections.cloud import NebiusCloud
from local import volumes
from local.report import Report, open_report


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

    The jail with all homes, mounts, the job queue, accounting's records, figures and keys stay in the namespace. The
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
    order = _Order(stack=stack, by_pulumi=by_pulumi, kill_jobs=kill_jobs, delete_data=delete_data)
    order.refuse_protected()
    if isinstance(stack.config.cloud, NebiusCloud):
        lost = removal(stack, engines.export(stack))
        print_lines(effect_lines(lost.effects))
        refuse(lost.effects)
    kubectl = reach_if_made(stack)
    if kubectl:
        _refuse_other_engine(kubectl, stack, "pulumi" if by_pulumi else "kubectl")
        order.refuse_lost_data(kubectl)
        order.judge(kubectl)
    if not yes and not order.is_agreed(kubectl):
        return
    report = open_report()
    if kubectl:
        order.carry_out(kubectl, report)
    if by_pulumi and (status := engines.run(stack, ["destroy", "--yes"])) != 0:
        raise typer.Exit(status)
    if by_pulumi and kubectl and not delete_data:
        typer.echo("what lies on file systems stays there for the next `up`; the keys are gone, and it makes new ones")
    if order.deletes_files:
        with report.step("Deleting the files of the volumes"):
            problems = volumes.discard()
        stay = [name for name in volumes.remaining() if name.startswith(f"{order.namespace}/")]
        for problem in [*problems, *(f"{name} is mounted by somebody, and its files stay" for name in stay)]:
            report.info(f"warning: {problem}")


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What somebody has asked for."""

    stack: Stack
    by_pulumi: bool
    kill_jobs: bool
    delete_data: bool

    @property
    def namespace(self) -> str:
        return self.stack.config.cluster.namespace

    @property
    def keeps_queue(self) -> bool:
        return not self.delete_data and (not self.by_pulumi or self.stack.config.queue_outlives_destroy)

    @property
    def deletes_files(self) -> bool:
        """Whether directories of this machine go, which Kubernetes itself leaves where they are."""
        return self.delete_data and self.stack.config.cloud.is_local

    def refuse_protected(self) -> None:
        """Raise Refused if the stack says that its data must stay, and it would not."""
        if self.stack.config.protects_data and (self.by_pulumi or self.delete_data):
            what = "the jail with all users' files, the job queue and the keys"
            and_up = ", run `up`" if self.by_pulumi else ""  # Pulumi's engine keeps in its state what is protected
            raise Refused(
                f"this stack is protected, and this would delete {what}",
                hint=f"if that is wanted, set `slurmstack:protect: false` in the stack file{and_up}, then this again",
            )

    def refuse_lost_data(self, kubectl: Kubectl) -> None:
        """Raise Refused if Pulumi's engine would delete data, and nobody has said that it may."""
        if not self.by_pulumi or self.delete_data:
            return
        lost = [item for item in data_of(kubectl, self.namespace).volumes if not is_retained(kubectl, item)]
        if lost:
            raise Refused(
                "Pulumi's engine deletes the namespace with its claims and keys, and this data with them: "
                + ", ".join(item.told for item in lost),
                hint="save what is needed (docs/backups.md), then add --delete-data",
            )

    def judge(self, kubectl: Kubectl, *, again: bool = False) -> None:
        """Print what becomes of the jobs. Raises Refused if one would end or be lost, but with `kill_jobs`.

        And Failure in the midst of a restore, which would end with the workloads that know of it.
        """
        if not self.delete_data:
            # Else the next `up` would start Slurm on what is half put back, and nobody would be told.
            refuse_restoring(kubectl, self.namespace)
        jobs = jobs_destroyed(kubectl, self.namespace, keeps_queue=self.keeps_queue)
        if self.kill_jobs:
            if not again and not jobs.unread and jobs.running + jobs.pending:
                typer.echo(f"jobs: {jobs.running} running, {jobs.pending} pending; all are cancelled")
            return
        if not again or jobs.refused:
            print_lines(lines(jobs))
        refuse_lost_jobs(jobs, "destroy")

    def is_agreed(self, kubectl: Kubectl | None) -> bool:
        """Ask, and name what is lost."""
        question = "Destroy it?"
        typer.echo(f"This deletes the cluster in {whereabouts(self.stack, kubectl)}.")
        if self.delete_data and kubectl:
            question = "Destroy it, with all of this?"
            typer.echo("Lost for good:")
            for line in data_of(kubectl, self.namespace).lines:
                typer.echo(f"  {line}")
        require_terminal()
        return typer.confirm(question)

    def carry_out(self, kubectl: Kubectl, report: Report) -> None:
        """End all pods, and delete what is to go."""
        if self.by_pulumi:  # its own lock is taken by `pulumi destroy`, after all pods have ended
            engines.refuse_locked(self.stack)
        data = data_of(kubectl, self.namespace)
        retained = [item.volume for item in data.volumes if self.delete_data and is_retained(kubectl, item)]
        with nullcontext() if self.by_pulumi else held(kubectl, self.namespace, "destroy", report):
            # Jobs may have come while a question waited, or somebody else who had the lock.
            self.judge(kubectl, again=True)
            kept = destroy_cluster(
                kubectl,
                self.stack.config,
                report,
                kill_jobs=self.kill_jobs,
                what="pods" if self.by_pulumi else "all" if self.delete_data else "all but data",
                files_go=(lambda: volumes.set_aside(self.namespace)) if self.deletes_files else None,
            )
        if kept is not None:
            self._tell(kept)
        if retained and not self.deletes_files:
            typer.echo(f"kept all the same, for so their volume says: {', '.join(retained)}")

    def _tell(self, kept: Kept) -> None:
        if not kept.volumes:
            return
        typer.echo(f"kept in namespace {kept.namespace}:")
        for line in kept.lines:
            typer.echo(f"  {line}")
        typer.echo(AFTERWARDS)


def _refuse_other_engine(kubectl: Kubectl, stack: Stack, engine: str) -> None:
    """Raise Failure if the namespace is not that of a cluster which this engine made, and this stack."""
    present = next(iter(kubectl.items("namespace", stack.config.cluster.namespace, OWNERS)), None)
    (refuse_foreign if engine == "pulumi" else refuse_takeover)(present)
    refuse_other_stack(kubectl, present, stack.name)
    if present is None:
        typer.echo(f"There is no namespace {stack.config.cluster.namespace}: only what is left outside of it goes.")
