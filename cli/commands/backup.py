"""The commands `backup now`, `backup list`, `backup verify`, `backup rehearse` and `restore`."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any, get_args

import typer

from cli.access.reach import reach, whereabouts
from cli.backup.jobs import How, run_job
from cli.backup.restore import Restoring, chosen, parts_of, refuse_restoring
from cli.change.lock import held
from cli.change.owner import applied_by, require_own
from cli.commands.destroy import running_jobs
from cli.commands.local import ensure_local_images
from cli.commands.options import ConfigOption, JsonOption, option, refuse_unless_agreed
from cli.errors import USAGE, Failure, Refused
from cli.kubectl.client import OWNERS, Kubectl
from cli.kubectl.jobs import answer_in
from cli.stack import Stack, open_stack
from config import ClusterConfig, load_config
from config.sections.slurm import Slurm
from local.report import PlainReport, duration_text
from slurm.conf import render
from slurm.images import DEFAULT_REGISTRY, image_reference, image_tags
from slurm.names import BACKUP, BACKUPS, REHEARSE, obstacle

app = typer.Typer()


@app.callback()
def backup() -> None:
    """Make backups, list them, see whether they can be read, and whether a cluster starts from them.

    What is saved, when, and how to get it back without this command: docs/backups.md.
    """


def _opened(config: Any) -> tuple[Stack, Kubectl, str, PlainReport]:
    stack = open_stack(config)
    return stack, reach(stack), stack.config.cluster.namespace, PlainReport(sys.stderr)


@app.command()
def now(config: ConfigOption = None) -> None:
    """Make a backup now, and wait for its end. Interrupted, it ends, and what it has saved stays.

    The first one makes the repository. Keep the Secret's password outside of the cluster, too: without it nobody can
    read the backups. The schedule stays as it is.
    """
    _, kubectl, namespace, report = _opened(config)
    refuse_restoring(kubectl, namespace)
    written = run_job(kubectl, namespace, BACKUP, report, env={"KIND": "manual"})
    for line in (line for line in written.splitlines() if "the repository is made" in line):
        typer.echo(line.partition(": ")[2], err=True)
    named = re.search(r"\bbackup (\d{8}T\d{6}Z):", written)  # images/backup/backups.py says which one it makes
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
    own of what it replaces: kind before-restore.
    """
    _, kubectl, namespace, report = _opened(config)
    found = answer_in(run_job(kubectl, namespace, BACKUPS, report, arguments=["list"]))
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for item in found:
        parts = ", ".join(f"{part} {saved['bytes'] / 2**20:,.0f} MiB" for part, saved in sorted(item["parts"].items()))
        marks = "" if item["complete"] else "  INCOMPLETE"
        typer.echo(f"{item['id']}  {item['kind']:<15} {parts}{marks}")
    if not found:
        typer.echo("there is no backup yet", err=True)


@app.command()
def verify(
    config: ConfigOption = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Read all content, not a twentieth of it.")] = False,
) -> None:
    """See whether the repository is whole, and read a twentieth of its content, another one each time."""
    _, kubectl, namespace, report = _opened(config)
    share = "100%" if everything else "5%"
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
    version: Annotated[
        str | None, option("--version", help="Another release than runs, before an upgrade to it: 26.05.")
    ] = None,
    tag: Annotated[
        str, option("--tag", help="Tag of that release's images. Default: as `images build` names them.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Put queue and records of a backup into a Slurm that is thrown away, start it, and compare. Users notice nothing.

    A Job in the cluster has a MariaDB, a slurmdbd and a slurmctld of its own, with keys of its own and no volume of the
    cluster; the database takes room on the disk of its machine. No job starts in it.

    Compared are the queue with accounting, and records, associations and users with what slurmdbd answers. The jail is
    not: `backup verify --all` reads what files hold. Exit status: 0; 1 if the backup is not as it was, or could not be
    put back; 2 if no cluster of this one can have that release. It also runs by itself (backup.rehearse in the stack
    file). `status` shows when one has ended well; the alert BackupUnrehearsed fires where none has for 30 days.

    With another release slurmdbd converts the tables of accounting first: the time until it answers is about what an
    upgrade will take, hours where there are years of records. That release's images must be there: `slurmstack images
    build --slurm-version 26.05`, and `images push`. On the local cluster they are built where they are missing.
    """
    if tag and version is None:
        raise Failure("--tag is of the images of --version", code=USAGE)
    stack, report = open_stack(config), PlainReport(sys.stderr)
    how, slurm = How(env={"AT": at}), version or stack.config.slurm.version
    if version is not None:
        other = _under(stack, version, tag)
        registry, role = other.images.registry or DEFAULT_REGISTRY, "database"
        image = image_reference(role, registry=registry, tag=image_tags(version, other.images)[role])
        how = How(env={"AT": at, "FILES": json.dumps(render(other))}, image=image)
        ensure_local_images(report, other)
    written = run_job(reach(stack), stack.config.cluster.namespace, REHEARSE, report, **how)
    outcome = {"slurm": slurm, **answer_in(written)}
    if as_json:
        typer.echo(json.dumps(outcome, indent=1))
        return
    took = {name: duration_text(seconds) for name, seconds in outcome["seconds"].items()}
    typer.echo(f"backup {outcome['backup']} under Slurm {slurm} is as it was ({took.pop('total')})")
    typer.echo(f"  compared: {', '.join(f'{number} {what}' for what, number in outcome['found'].items())}")
    for name, seconds in took.items():
        typer.echo(f"  {name} answered after {seconds}")


def _under(stack: Stack, version: str, tag: str) -> ClusterConfig:
    """The stack file with another release of Slurm. Raises Failure where no cluster of this one can have it."""
    ours, old = get_args(Slurm.model_fields["version"].annotation), stack.config.slurm.version
    if version not in ours:
        raise Failure(f"--version {version}: there is {' and '.join(ours)}", code=USAGE)
    if (why := obstacle(old, version)) is not None:
        hint = "without --version it is the release that runs" if old == version else ""
        raise Failure(f"--version: {old} to {version} {why}", hint=hint, code=USAGE)
    # Tag and digests of the stack file are those of images of the release that runs.
    images = {key: value for key, value in stack.sections.get("images", {}).items() if key not in {"tag", "digests"}}
    images |= {"tag": tag} if tag else {}
    slurm = {**stack.sections.get("slurm", {}), "version": version}
    return load_config({**stack.sections, "slurm": slurm, "images": images})


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
    found = chosen(kubectl, namespace, parts, at, report)
    jobs = running_jobs(kubectl, namespace) if "state" in parts or "jail" in parts else []
    question = f"{', '.join(parts)} of {whereabouts(stack, kubectl)} will be as in backup {found}"
    question += f"; {len(jobs)} running jobs end" if jobs else ""
    if not yes:
        refuse_unless_agreed(question, name=namespace)
    with held(kubectl, namespace, "restore", report):
        output = Restoring(kubectl, namespace, parts, report).run(found, copy=copy, start=not leave_stopped)
    for line in output.splitlines():
        if line.startswith("backup: "):
            typer.echo(line, err=True)
    stopped = ". Slurm is stopped: `slurmstack up` starts it" if leave_stopped else ""
    typer.echo(f"{', '.join(parts)}: as in backup {found}. Tokens and host keys are this cluster's, as before{stopped}")
