"""The command `support-bundle`: one archive for whoever helps."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.bundle.archive import MANIFEST, SECRETS_UNREAD, own_versions, read_bundle
from cli.commands.options import ConfigOption, named, option
from cli.errors import USAGE, Failure
from cli.stack import open_stack
from local.report import open_report


def support_bundle(
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            metavar="FILE",
            parser=named,
            help="The archive. Default: slurmstack-NAMESPACE-TIME.tar.gz in this directory.",
        ),
    ] = None,
) -> None:
    """Write an archive for whoever helps: what the cluster says of itself, without its secrets.

    It has the versions, the stack file, what `status` and `doctor` say, the Kubernetes objects of the namespace with
    their events, the logs of all containers (the end of long ones), and what Slurm says of its configuration, nodes,
    partitions and jobs. MANIFEST.txt lists the files, and what could not be read and why.

    Of Secrets only the names are written. Their values, from 8 bytes on, are taken out of every other file, also in
    Base64 and line by line; and so is what looks like a private key, a token or a password. That is no
    promise: a secret that is in no Secret of the namespace and looks like any other word stays. Names of users, jobs,
    hosts and files stay. Look through it before you send it.

    It changes nothing in the cluster and sends nothing anywhere. Rights in the namespace are enough; what they do not
    allow is missing, and listed. Exit status: 0, also if parts are missing; 1 if nothing could be read.

    Examples:
      slurmstack support-bundle

      slurmstack support-bundle --config Pulumi.prod.yaml --output case-17.tar.gz

      tar -xzOf case-17.tar.gz --wildcards '*/MANIFEST.txt'
    """
    stack = open_stack(config)
    namespace, at = stack.config.cluster.namespace, datetime.now(UTC)
    folder = f"slurmstack-{namespace}-{at:%Y%m%dT%H%M%SZ}"
    path = output or Path(f"{folder}.tar.gz")
    try:
        stream = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}", hint="--output FILE", code=USAGE) from None
    try:
        with stream, open_report().step(f"Reading namespace {namespace}") as step:
            bundle = read_bundle(reach(stack), stack, step.progress)
            head = f"{own_versions()}, namespace {namespace}, {at:%Y-%m-%dT%H:%M:%SZ}"
            bundle.write(stream, folder=folder, head=head, at=at)
            step.note(f"{len(bundle.texts)} files")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    logs = sum(name.startswith("logs/") for name in bundle.texts)
    typer.echo(f"{path}: {len(bundle.texts)} files, {logs} of them logs, {path.stat().st_size / 1024:.0f} KiB")
    if bundle.missing:
        typer.echo(f"{len(bundle.missing)} could not be read, for example {next(iter(bundle.missing))}; see {MANIFEST}")
    if SECRETS_UNREAD in bundle.missing:
        typer.echo("WARNING: the Secrets could not be read: only what looks like a secret was taken out")
    typer.echo(
        "Look through it before you send it. Taken out: what the namespace's Secrets have, private keys, tokens, "
        "passwords. In it: names of users, accounts, jobs, hosts, machines and files, addresses, and whatever programs "
        "wrote into their logs."
    )
