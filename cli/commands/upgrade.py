"""The command `upgrade rehearse`."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from cli.commands.backup import AtOption, carry_out_rehearsal
from cli.commands.options import ConfigOption, JsonOption, option
from cli.errors import USAGE, Failure
from cli.stack import open_stack
from config.sections.slurm import Slurm
from slurm.releases import obstacle

app = typer.Typer()


@app.callback()
def upgrade() -> None:
    """Try another release of Slurm on the last backup, before the cluster gets it.

    Examples:
      slurmstack upgrade rehearse --version 26.05
    """


@app.command()
def rehearse(
    config: ConfigOption = None,
    *,
    version: Annotated[str, option("--version", help="The release to try: 26.05.")],
    at: AtOption = "",
    jail: Annotated[bool, typer.Option("--with-jail/--without-jail", help="Put the jail back, too.")] = False,
    tag: Annotated[
        str, option("--tag", help="Tag of that release's images. Default: as `images build` names them.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Put the last backup back under another Slurm release, in a cluster that is thrown away, and say how long it took.

    All is as with `slurmstack backup rehearse`, whose help says more. slurmdbd converts the tables of accounting at its
    first start, which takes hours where there are years of records: the time until it answers is what an upgrade will
    take on volumes like these. slurmctld reads the queue of the older release.

    The images of that release must be there: `slurmstack images build --slurm-version 26.05`, and `images push`. On the
    local cluster they are built where they are missing.

    Exit status: 0; 1 if the backup was not as it was under that release; 2 if no cluster of this one can have it.
    """
    stack = open_stack(config)
    _refuse_version(stack.config.slurm.version, version)
    carry_out_rehearsal(stack, at=at, jail=jail, as_json=as_json, version=version, tag=tag)


def _refuse_version(old: str, new: str) -> None:
    ours = get_args(Slurm.model_fields["version"].annotation)
    if new not in ours:
        raise Failure(f"--version {new}: there is {' and '.join(ours)}", code=USAGE)
    if (why := obstacle(old, new)) is not None:
        hint = "`slurmstack backup rehearse` tries the backup under the release that runs" if old == new else ""
        raise Failure(f"--version: {old} to {new} {why}", hint=hint, code=USAGE)
