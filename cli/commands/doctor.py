"""The command `doctor`: what is wrong with the cluster that runs, with a job, and with a cloud before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.change.owner import AFTERWARDS, only_kept
from cli.commands.options import ConfigOption, JsonOption, failing_with
from cli.doctor.cluster.findings import Finding, as_data, print_findings
from cli.doctor.cluster.rules import diagnose, diagnose_job
from cli.doctor.cluster.rules.configuration import deleted_namespace
from cli.errors import FAILED, USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.logs.gather import errors_in_output, errors_on_nodes
from cli.stack import Stack, open_stack
from cli.status.questions import DOCTOR
from cli.status.snapshot import JOB, Snapshot, read_job, take
from config.sections.cloud import NebiusCloud

COULD_NOT_LOOK = 3
"""Exit status where neither Kubernetes nor Slurm could be asked, or Slurm could not and nothing else is wrong."""

SILENT = 3
"""Seconds that the API server may be silent before that is what there is to say."""

JOB_SECONDS = 5
"""For slurmctld's answer about a job; slurmdbd has twice as many."""

app = typer.Typer(invoke_without_command=True)


@app.callback()
def doctor(context: typer.Context, config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Say what is wrong with the running cluster, and what mends it.

    Without the name of a command it asks Kubernetes and Slurm some questions at the same time, for 5 s at most, and
    prints the causes: the most likely one of the worst first, with what was seen, what follows from it, and a command.
    It changes nothing. What these credentials may not read is said, and the rest is looked at all the same.

    Exit status: 0 nothing found, 1 something found (a note counts too), 2 wrong usage, 3 could not look, or
    not at Slurm.

    Examples:
      slurmstack doctor

      slurmstack doctor job 1234

      slurmstack doctor --json | jq -r '.findings[] | .cause'

      slurmstack doctor cloud
    """
    if context.invoked_subcommand is not None:
        if config is not None or as_json:
            raise Failure("options of `doctor` come after the name of its command", code=USAGE)
        return
    stack = open_stack(config)
    with failing_with(COULD_NOT_LOOK):
        cluster = _look(stack, reach(stack, seconds=SILENT, ask=False))
    found = diagnose(cluster)
    unasked = "slurm" in cluster.unread
    fine = "Slurm could not be asked; nothing else is wrong" if unasked else "Nothing is wrong"
    _print(cluster, found, config, as_json=as_json, fine=f"{fine}, as far as could be seen.")
    if found or unasked:
        raise typer.Exit(FAILED if found else COULD_NOT_LOOK)


@app.command()
def job(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As squeue shows it: 12, or 12_3 of an array.")],
    config: ConfigOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say why a job waits, where it runs, or how it has ended.

    Exit status: 0 it runs or has ended well, 1 it waits, or has ended otherwise, 2 nobody knows such a job, 3 could not
    look.

    Examples:
      slurmstack doctor job 1234
    """
    if not re.fullmatch(JOB, id_):
        raise Failure(f"{id_!r} is no number of a job", hint="`squeue` shows them: 12, or 12_3 of an array", code=USAGE)
    stack = open_stack(config)
    accounting, namespace = stack.config.accounting.enabled, stack.config.cluster.namespace
    pool = ThreadPoolExecutor()
    with failing_with(COULD_NOT_LOOK):
        kubectl = reach(stack, seconds=SILENT, ask=False)
        asked = pool.submit(read_job, kubectl, namespace, id_, accounting=accounting, seconds=JOB_SECONDS)
        pool.shutdown(wait=False)  # where there is nothing to look at, that is said without its answer
        cluster = _look(stack, kubectl)
    known = asked.result()
    if cluster.slurmctld or "slurm" in cluster.unread:
        raise Failure(
            f"slurmctld could not be asked: {cluster.slurmctld or cluster.unread['slurm']}",
            hint="`slurmstack doctor` says what is wrong with it",
            code=COULD_NOT_LOOK,
        )
    on_nodes = errors_on_nodes(kubectl, namespace, cluster.of("Pod"), known)
    found = diagnose_job(cluster, known, (*errors_in_output(kubectl, namespace, known), *on_nodes))
    if not found:
        # Nobody knows it, or who does could not be asked.
        silent = {**known.missing, **({"queue": cluster.unread["jobs"]} if "jobs" in cluster.unread else {})}
        unasked = "; not asked: " + ", ".join(f"{who} ({why})" for who, why in silent.items()) if silent else ""
        raise Failure(
            f"no job {id_} was found{unasked}", hint="`squeue`, `sacct`", code=COULD_NOT_LOOK if unasked else USAGE
        )
    _print(cluster, found, config, as_json=as_json, job=id_)
    if any(item.severity != "note" or " waits: " in item.cause for item in found):
        raise typer.Exit(FAILED)


def _look(stack: Stack, kubectl: Kubectl) -> Snapshot:
    """What can be read of the cluster. Raises Failure if that is nothing."""
    cluster = take(kubectl, stack.config, DOCTOR)
    if deleted_namespace(cluster) is not None:
        return cluster
    if not cluster.of("Pod", "StatefulSet", "Deployment", "Job") and "slurm" in cluster.unread:
        kubectl = reach(stack, seconds=SILENT)  # says it better where there is no such cluster, or it is silent
        whys = "; ".join(dict.fromkeys(f"{part}: {why}" for part, why in cluster.unread.items()))
        missing = cluster.knows("pods", "workloads")
        if missing and (kept := only_kept(kubectl, cluster.namespace)) is not None:
            what = "; ".join(kept.lines)
            message = f"no cluster runs in namespace {cluster.namespace}: `destroy` has kept its data: {what}"
            raise Failure(message, hint=AFTERWARDS)
        raise Failure(
            f"nothing of a cluster is in namespace {cluster.namespace}" if missing else f"nothing can be read: {whys}",
            hint="`slurmstack up` makes it" if missing else "ask for rights to read in the namespace",
        )
    return cluster


def _print(
    cluster: Snapshot, found: Sequence[Finding], config: Path | None, *, as_json: bool, fine: str = "", **about: str
) -> None:
    """Print what was found. `fine`: said where that is nothing."""
    if as_json:
        typer.echo(json.dumps(as_data(cluster, found, **about), indent=1))
    else:
        print_findings(cluster, found, fine=fine, stack=config)


@app.command()
def cloud(
    config: ConfigOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Ask the cloud whether the stack finds room: its region, its quotas, and the machines that can be had now.

    Changes nothing and costs nothing. One line for each check: fine, a warning, what to change, or that the check could
    not be made, and why. Exit status 1 if anything must change.

    Credentials are those of the file $SLURMSTACK_NEBIUS_CREDENTIALS, else $NEBIUS_IAM_TOKEN, else those of the `nebius`
    command's profile.
    """
    stack = open_stack(config)
    settings = stack.config.cloud
    if not isinstance(settings, NebiusCloud):
        message = "the cluster is already there (cloud.kind: existing), so there is no cloud to ask"
        typer.echo(json.dumps({"cloud": settings.kind, "ok": True, "findings": []}) if as_json else message)
        return
    from cli.doctor.cloud.check import diagnose, print_findings  # noqa: PLC0415  the SDK takes a second to load

    found = diagnose(stack.config, settings)
    fine = all(item.state != "change" for item in found)
    if as_json:
        data = {"cloud": settings.kind, "ok": fine, "findings": [vars(item) for item in found]}
        typer.echo(json.dumps(data, indent=1))
    else:
        print_findings(found)
    if not fine:
        raise typer.Exit(FAILED)
