"""The command `doctor`: what is wrong with the cluster that runs, with a job, and with a cloud before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.options import ConfigOption, JsonOption, failing_with
from cli.errors import FAILED, USAGE, Failure
from cli.stack import open_stack
from config.sections.cloud import NebiusCloud

if TYPE_CHECKING:
    from cli.doctor.cluster.facts import Facts
    from cli.kubectl.client import Kubectl

COULD_NOT_LOOK = 3
"""Exit status where neither Kubernetes nor Slurm could be asked."""

SILENT = 3
"""Seconds that the API server may be silent before that is what there is to say."""

app = typer.Typer(invoke_without_command=True)


@app.callback()
def doctor(context: typer.Context, config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Say what is wrong with the running cluster, and what mends it.

    Without the name of a command it asks Kubernetes and Slurm some questions at the same time, for 5 s at most, and
    prints the causes: the most likely one of the worst first, with what was seen, what follows from it, and a command.
    It changes nothing. What these credentials may not read is said, and the rest is looked at all the same.

    Exit status: 0 nothing found, 1 something found (a note counts too), 2 wrong usage, 3 could not look at all.

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
    from cli.doctor.cluster.diagnose import diagnose  # noqa: PLC0415

    facts = _look(config)
    found = diagnose(facts)
    _tell(facts, found, config, as_json=as_json, fine="Nothing is wrong, as far as could be seen.")
    if found:
        raise typer.Exit(FAILED)


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
    from cli.doctor.cluster.diagnose import diagnose_job  # noqa: PLC0415

    if not re.fullmatch(r"\d{1,10}([_+]\d{1,10})?", id_):
        raise Failure(f"{id_!r} is no number of a job", hint="`squeue` shows them: 12, or 12_3 of an array", code=USAGE)
    facts = _look(config, job=id_)
    if facts.slurmctld or "slurm" in facts.unread:
        raise Failure(
            f"slurmctld could not be asked: {facts.slurmctld or facts.unread['slurm']}",
            hint="`slurmstack doctor` says what is wrong with it",
            code=COULD_NOT_LOOK,
        )
    found = diagnose_job(facts, id_)
    if not found:
        # Nobody knows it, or who does could not be asked.
        silent = {part: why for part, why in facts.unread.items() if part in {"jobs", "accounting"}}
        told = "; not asked: " + ", ".join(f"{part} ({why})" for part, why in silent.items()) if silent else ""
        raise Failure(f"no job {id_} was found{told}", hint="`squeue`, `sacct`", code=COULD_NOT_LOOK if told else USAGE)
    _tell(facts, found, config, as_json=as_json, fine="", job=id_)
    if any(item.severity != "note" or " waits: " in item.cause for item in found):
        raise typer.Exit(FAILED)


def _look(config: Path | None, *, job: str = "") -> Facts:
    """What can be read of the cluster. Raises Failure if that is nothing."""
    from cli.access.reach import reach  # noqa: PLC0415
    from cli.doctor.cluster.collect import collect  # noqa: PLC0415

    stack = open_stack(config)
    with failing_with(COULD_NOT_LOOK):
        facts = collect(reach(stack, seconds=SILENT, ask=False), stack.config, job=job)
        if not facts.pods and not facts.owners and "slurm" in facts.unread:
            kubectl = reach(stack, seconds=SILENT)  # says it better where there is no such cluster, or it is silent
            whys = "; ".join(dict.fromkeys(f"{part}: {why}" for part, why in facts.unread.items()))
            missing = facts.knows("pods", "workloads")
            if missing:
                _refuse_only_kept(kubectl, facts.namespace)
            raise Failure(
                f"nothing of a cluster is in namespace {facts.namespace}"
                if missing
                else f"nothing can be read: {whys}",
                hint="`slurmstack up` makes it" if missing else "ask for rights to read in the namespace",
            )
    return facts


def _refuse_only_kept(kubectl: Kubectl, namespace: str) -> None:
    """Raise Failure if `destroy` has left nothing but data."""
    from cli.change.owner import AFTERWARDS, only_kept  # noqa: PLC0415

    kept = only_kept(kubectl, namespace)
    if kept is not None:
        what = "; ".join(kept.lines)
        raise Failure(f"no cluster runs in namespace {namespace}: `destroy` has kept its data: {what}", hint=AFTERWARDS)


def _tell(facts: Facts, found: Sequence[Any], config: Path | None, *, as_json: bool, fine: str, **about: str) -> None:
    """Print what was found. `fine`: said where that is nothing."""
    from cli.doctor.cluster.findings import as_data, print_findings  # noqa: PLC0415

    if as_json:
        typer.echo(json.dumps(as_data(facts, found, **about), indent=1))
    else:
        print_findings(facts, found, fine=fine, stack=config)


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
    from cli.doctor.cloud import nebius, report  # noqa: PLC0415  the SDK takes a second to load

    found = nebius.diagnose(stack.config, settings)
    if as_json:
        typer.echo(json.dumps(report.as_data(found, cloud=settings.kind), indent=1))
    else:
        report.print_findings(found)
    if report.must_change(found):
        raise typer.Exit(FAILED)
