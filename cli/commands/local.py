"""Commands for the local cluster: a real two-node Kubernetes on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from config import ClusterConfig
from local import cluster, images
from local.files import write_whole
from local.report import Report, open_report
from slurm.images import JailExtras, jail_extras
from slurm.local_cluster import kubeconfig, login_key

app = typer.Typer(
    help="The local cluster: a real two-node Kubernetes on this machine, for development and trying out.",
    no_args_is_help=True,
)


@app.command()
def up() -> None:
    """Start the local cluster and give it our images; fetch and build what is missing. Run again, it repairs.

    The first run takes about 15 minutes on two cores (Kubernetes is built from source), later ones seconds. Images of
    another Slurm than 24.11 come with the first `slurmstack up` of a stack that names it.
    """
    report = open_report()
    cluster.up(report, images=lambda: images.ensure_images(report).archive)
    ensure_login_key()


@app.command()
def build() -> None:
    """Fetch and build what `local up` needs, and start nothing: before the network goes, or in CI."""
    report = open_report()
    cluster.build_all(report, images=lambda: images.ensure_images(report).archive)


@app.command()
def down(
    *,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the cache of built programs and images too.")] = False,
) -> None:
    """Stop the local cluster and remove everything that it made, the jail's files included.

    The cache of built programs and images stays, so that the next start is fast, unless --purge is given.
    """
    cluster.down(open_report(), purge=purge)


@app.command()
def status(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> None:
    """Show the local cluster's processes, nodes and logs. Exit status 1 if it is not whole."""
    found = cluster.status()
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=1, default=str))
    else:
        typer.echo("\n".join(cluster.lines(found)))
    if not found.healthy:
        raise typer.Exit(1)


@app.command("restart-node")
def restart_node(name: Annotated[str, typer.Argument(help="node-0 or node-1.")]) -> None:
    """Stop everything on one node at once, as a machine reset would, and start it again."""
    cluster.restart_node(name, open_report())


def load_images(report: Report, slurm_version: str, extras: JailExtras) -> None:
    """Build the images of one Slurm version if need be, and import them on every node that lacks them."""
    built = images.ensure_images(report, slurm_version, extras)
    with report.step("Import the images on the nodes") as step:
        if not cluster.load_archive(built.archive):
            step.note("already there")


def ensure_local_images(report: Report, config: ClusterConfig) -> None:
    """For a stack on the local cluster that uses images built here: see that its nodes have them."""
    if not config.cloud.is_local or not kubeconfig().exists():
        return  # connecting says so, with the way out
    if config.images.registry is None and config.images.tag is None:
        load_images(report, config.slurm.version, jail_extras(config.images))
    if config.monitoring.has_kube_state and config.monitoring.kube_state_image is None:
        cluster.load_archive(images.ensure_kube_state(report))


def ensure_login_key() -> Path:
    """The SSH key that every user of a stack on the local cluster accepts; made once, readable by its owner only."""
    private = login_key()
    if not private.exists():
        private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        private.with_suffix(".pub").write_text(f"{public} slurmstack-local\n", encoding="utf-8")
        write_whole(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return private
