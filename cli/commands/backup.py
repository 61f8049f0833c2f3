"""The commands `backup now`, `backup list`, `backup verify`, `backup rehearse`, `upgrade rehearse` and `restore`."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any, get_args

import typer

from cli.access.reach import reach, whereabouts
from cli.backup.jobs import answer_in, follow_job, make_job, run_job
from cli.backup.rehearse import Rehearsal
from cli.backup.restore import Restoring, chosen, parts_of, refuse_restoring
from cli.backup.verdict import text
from cli.change.lock import held
from cli.change.owner import applied_by, require_own
from cli.commands.destroy import running_jobs
from cli.commands.local import ensure_local_images
from cli.commands.options import ConfigOption, JsonOption, option, refuse_unless_agreed
from cli.errors import FAILED, INTERRUPTED, USAGE, Failure, Refused
from cli.kubectl.client import OWNERS, Kubectl
from cli.stack import Stack, open_stack
from config import load_config
from config.sections.slurm import Slurm
from local.report import PlainReport
from slurm.names import BACKUP, BACKUPS, obstacle

app = typer.Typer()


@app.callback()
def backup() -> None:
    """Make backups, list them, see whether they can be read, and whether a cluster starts from them.

    What is saved, when, and how to get it back without this command: docs/backups.md.

    Examples:
      slurmstack backup now

      slurmstack backup list

      slurmstack backup verify --all

      slurmstack backup rehearse
    """


def _opened(config: Any) -> tuple[Stack, Kubectl, str, PlainReport]:
    stack = open_stack(config)
    return stack, reach(stack), stack.config.cluster.namespace, PlainReport(sys.stderr)


@app.command()
def now(config: ConfigOption = None) -> None:
    """Make a backup now, and wait for its end.

    The first one makes the repository. It goes on if this is interrupted. The schedule stays as it is.
    """
    _, kubectl, namespace, report = _opened(config)
    refuse_restoring(kubectl, namespace)
    made = make_job(kubectl, namespace, BACKUP, env={"KIND": "manual"})
    try:
        written = follow_job(kubectl, namespace, made, report)
    except KeyboardInterrupt:
        raise Failure(
            f"interrupted, but the job {made} goes on in the cluster",
            hint="`slurmstack backup list` shows it when it has ended; the same command again makes another one",
            code=INTERRUPTED,
        ) from None
    named = re.search(r"\bbackup (\d{8}T\d{6}Z):", written)  # images/backup/save.py says which one it makes
    typer.echo(f"the backup {named[1] + ' ' if named else ''}is made; `slurmstack backup list` shows it")


def _refuse_applied(kubectl: Kubectl, namespace: str, *, suspended: bool) -> None:
    """Raise Refused where GitOps would start Slurm in the midst of a restore."""
    ours = ("-l", "app.kubernetes.io/part-of=slurmstack")
    managers = set(map(applied_by, kubectl.items("statefulset,deployment", "-n", namespace, *ours, OWNERS))) - {""}
    if managers and not suspended:
        raise Refused(
            f"this cluster is applied by {', '.join(sorted(managers))}, which would start Slurm, and its backups, on "
            "what is half put back; nothing was touched",
            hint="suspend it (`flux suspend kustomization NAME`; Argo CD: no automated sync), then add --suspended",
        )


@app.command("list")
def list_(config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """List all backups, oldest first: id, which is the time (UTC), kind, parts with their sizes.

    One that is incomplete was interrupted, or failed: the parts that it has can be restored. A restore makes one of its
    own of what it replaces: kind before-restore. At the end it says when `backup rehearse` has ended well last.
    """
    _, kubectl, namespace, report = _opened(config)
    found = answer_in(run_job(kubectl, namespace, BACKUPS, report, arguments=["list"]))
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for item in found:
        parts = ", ".join(f"{part} {told['bytes'] / 2**20:,.0f} MiB" for part, told in sorted(item["parts"].items()))
        marks = "" if item["complete"] else "  INCOMPLETE"
        typer.echo(f"{item['id']}  {item['kind']:<15} {parts}{marks}")
    if not found:
        typer.echo("there is no backup yet", err=True)
    for cronjob in kubectl.items("cronjob", BACKUPS, "-n", namespace):
        rehearsed = cronjob.get("status", {}).get("lastSuccessfulTime", "never")
        typer.echo(f"the last rehearsal that ended well: {rehearsed}", err=True)


@app.command()
def verify(
    config: ConfigOption = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Read all content, not a twentieth of it.")] = False,
) -> None:
    """See whether the repository is whole, and read a twentieth of its content, another one each time."""
    _, kubectl, namespace, report = _opened(config)
    share = "all" if everything else "5%"
    run_job(kubectl, namespace, BACKUPS, report, env={"READ": share}, arguments=["verify"])
    typer.echo(f"the backups are whole ({share} of their content was read)")


AtOption = Annotated[
    str,
    option(
        "--at",
        metavar="TIME",
        help="The last backup up to 2026-11-26T02:00 (UTC) or of a day, or a backup's id. Default: the last.",
    ),
]


@app.command()
def rehearse(
    config: ConfigOption = None,
    *,
    at: AtOption = "",
    jail: Annotated[bool, typer.Option("--with-jail/--without-jail", help="Put the jail back, too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Put a backup back into a cluster that is thrown away, start it, compare, and remove it. Users notice nothing.

    It is in the namespace NAMESPACE-rehearsal, with volumes, a database and keys of its own: there must be room for
    them. It has no workers, its partitions are down, and it makes no backups: no job starts, nobody is written to. It
    is removed in any case; what one that was killed has left the next one removes.

    Compared are the queue with accounting, the last records with what slurmdbd answers, what the jail's files hold.
    Exit status: 0; 1 if the backup is not as it was, or could not be put back. `backup list` shows when one has
    ended well; the alert BackupUnrehearsed fires where none has for 30 days.

    Examples:
      slurmstack backup rehearse

      slurmstack backup rehearse --at 2026-11-26 --without-jail
    """
    carry_out_rehearsal(open_stack(config), at=at, jail=jail, as_json=as_json)


def carry_out_rehearsal(
    stack: Stack, *, at: str, jail: bool, as_json: bool, version: str | None = None, tag: str = ""
) -> None:
    """Rehearse, and tell how it ended. `version`: another release of Slurm, with images of this tag."""
    report = PlainReport(sys.stderr)
    rehearsal = Rehearsal(reach(stack), stack, report, version=version, tag=tag)
    ensure_local_images(report, load_config(rehearsal.sections))
    outcome = rehearsal.run(at=at, jail=jail)
    typer.echo(json.dumps(outcome.as_data(), indent=1) if as_json else text(outcome))
    if outcome.problems:
        raise typer.Exit(FAILED)


upgrade_app = typer.Typer()


@upgrade_app.callback()
def upgrade() -> None:
    """Try another release of Slurm on the last backup, before the cluster gets it.

    Examples:
      slurmstack upgrade rehearse --version 26.05
    """


@upgrade_app.command("rehearse")
def rehearse_upgrade(
    config: ConfigOption = None,
    *,
    version: Annotated[str, option("--version", help="The release to try: 26.05.")],
    at: AtOption = "",
    tag: Annotated[
        str, option("--tag", help="Tag of that release's images. Default: as `images build` names them.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Put the last backup back under another Slurm release, in a cluster that is thrown away, and say how long it took.

    The jail is left out. All else is as with `slurmstack backup rehearse`, whose help says more. slurmdbd converts the
    tables of accounting at its first start, which takes hours where there are years of records: the time until it
    answers is what an upgrade will take on volumes like these. slurmctld reads the queue of the older release.

    The images of that release must be there: `slurmstack images build --slurm-version 26.05`, and `images push`. On the
    local cluster they are built where they are missing.

    Exit status: 0; 1 if the backup was not as it was under that release; 2 if no cluster of this one can have it.
    """
    stack = open_stack(config)
    _refuse_version(stack.config.slurm.version, version)
    carry_out_rehearsal(stack, at=at, jail=False, as_json=as_json, version=version, tag=tag)


def _refuse_version(old: str, new: str) -> None:
    ours = get_args(Slurm.model_fields["version"].annotation)
    if new not in ours:
        raise Failure(f"--version {new}: there is {' and '.join(ours)}", code=USAGE)
    if (why := obstacle(old, new)) is not None:
        hint = "`slurmstack backup rehearse` tries the backup under the release that runs" if old == new else ""
        raise Failure(f"--version: {old} to {new} {why}", hint=hint, code=USAGE)


def restore(
    config: ConfigOption = None,
    *,
    what: Annotated[
        list[str] | None,
        typer.Option("--what", metavar="PART", help="state, database, jail or all.", show_default="all"),
    ] = None,
    at: AtOption = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace what is there without asking.")] = False,
    copy: Annotated[bool, typer.Option("--copy/--no-copy", help="Save what is replaced first.")] = True,
    leave_stopped: Annotated[
        bool,
        typer.Option(
            "--leave-stopped", help="Start nothing afterwards: `up` does, also with an older Slurm release than runs."
        ),
    ] = False,
    suspended: Annotated[
        bool, typer.Option("--suspended", help="What else applies this cluster (Flux, Argo CD) is suspended meanwhile.")
    ] = False,
) -> None:
    """Put a backup back, into the same cluster or an empty one of the same stack file.

    state: the queue, as it was. Jobs that ran at that time are lost with their processes; Slurm queues again those that
    may be requeued. Job ids go on above the highest that is known. database: accounting's records. jail: the root
    file system with all homes; files that have come since stay, accounts are those of the stack file.

    What writes there is stopped meanwhile: with the state all worker pods, whose jobs end. What is replaced is saved
    first, as a backup of the kind before-restore; to put that back deletes no files of the jail, either. Keys are not
    put back: docs/restore.md.

    Examples:
      slurmstack restore --yes

      slurmstack restore --what state --what database --at 2026-11-26T02:00

      slurmstack restore --what state --what database --at 20261126T101500Z --leave-stopped
    """
    stack, kubectl, namespace, report = _opened(config)
    require_own(stack, kubectl)
    parts = parts_of(what or (), accounting=stack.config.accounting.enabled)
    _refuse_applied(kubectl, namespace, suspended=suspended)
    found = str(chosen(kubectl, namespace, parts, at, report)["id"])
    jobs = running_jobs(kubectl, namespace) if "state" in parts or "jail" in parts else []
    question = f"{', '.join(parts)} of {whereabouts(stack, kubectl)} will be as in backup {found}"
    question += f"; {len(jobs)} running jobs end" if jobs else ""
    if not yes:
        refuse_unless_agreed(question)
    with held(kubectl, namespace, "restore", report):
        said = Restoring(kubectl, namespace, parts, report).run(found, copy=copy, start=not leave_stopped)
    for line in said.splitlines():
        if "restore: " in line:
            typer.echo(line, err=True)
    stopped = ". Slurm is stopped: `slurmstack up` starts it" if leave_stopped else ""
    typer.echo(f"{', '.join(parts)}: as in backup {found}. Tokens and host keys are this cluster's, as before{stopped}")
