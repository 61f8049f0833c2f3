"""`slurmstack import`: a stack file from the files of an existing cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import JsonOption, argument, named, option
from cli.errors import Failure
from cli.importing.convert import convert
from cli.text import printable
from local.files import write_whole


def import_cluster(
    slurm_conf: Annotated[Path, argument(metavar="SLURM_CONF", parser=named, help="slurm.conf of the old cluster.")],
    gres: Annotated[Path | None, option("--gres", metavar="FILE", parser=named, help="Its gres.conf.")] = None,
    sacctmgr: Annotated[
        Path | None,
        option("--sacctmgr", metavar="FILE", parser=named, help="What `sacctmgr dump CLUSTER file=FILE` wrote."),
    ] = None,
    output: Annotated[
        Path | None,
        option("--output", "-o", metavar="FILE", parser=named, help="Stack file. Default: standard output."),
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a stack file from the files of an existing Slurm cluster, and list what it could not take, and why.

    Needs no cluster. The list goes to standard error, each line with its place and what to use instead; with --json
    the stack file and the lists go to standard output. docs/import.md.
    """
    if output is not None and output.exists() and not force:
        raise Failure(f"{output} is there already", hint="--force overwrites it")
    text, draft = convert(slurm_conf, gres, sacctmgr)
    if output is not None:
        try:
            write_whole(output, text, mode=0o644)
        except OSError as error:
            raise Failure(f"{output} cannot be written: {error.strerror or error}") from None
    if as_json:
        taken = [{**vars(one), "place": ".".join(path)} for path, all_of in draft.taken.items() for one in all_of]
        left = [{**vars(parameter), "why": why} for parameter, why in draft.left]
        typer.echo(json.dumps({"stack": text, "taken": taken, "left": left}, indent=1))
        return
    if output is None:
        typer.echo(text, nl=False)
    for line in (f"{len(draft.taken)} values taken, {len(draft.left)} not; defaults are left out", *draft.told()):
        print(printable(line), file=sys.stderr)
