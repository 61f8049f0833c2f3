"""Commands that lead into a cluster: login, dashboard, kubeconfig."""

from __future__ import annotations

import hashlib
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cli.access.login import open_session
from cli.access.reach import forwarded, kubeconfig_of, reach, write_private
from cli.commands.options import ConfigOption, argument, option
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.stack import open_stack
from config.cluster import ClusterConfig
from slurm.names import CONTROLLER_HOST, REST, REST_PORT


def open_dashboard(kubectl: Kubectl, config: ClusterConfig, *, port: int, until: threading.Event) -> None:
    """Lead a port of this machine to the page, say how to log in, and stay until `until` is set.

    Raises Failure where the stack has no page, or when it cannot be reached.
    """
    if not config.dashboard.enabled:
        raise Failure(
            "this stack has no dashboard",
            hint="set slurmstack:dashboard: {enabled: true} and slurmstack:rest: {enabled: true}, then `slurmstack up`",
        )
    namespace = config.cluster.namespace
    if not kubectl.items("service", REST, "-n", namespace):
        raise Failure(f"there is no dashboard in namespace {namespace} yet", hint="`slurmstack up` makes it")
    with forwarded(kubectl, namespace, REST, REST_PORT, port=port) as opened:
        print_way(opened, _fingerprint(opened), namespace)
        until.wait()


def write_dashboards(config: ClusterConfig, directory: Path) -> None:
    """Write Grafana's dashboards, each a file to import, and say which.

    Raises Failure where the stack has no figures, or when they cannot be written.
    """
    if not config.monitoring.is_on:
        raise Failure("this stack has no figures to show", hint="set slurmstack:monitoring: {enabled: true}")
    from slurm.dashboards.grafana import dashboard_files  # noqa: PLC0415  a fifth of a second, for this option alone

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in dashboard_files(config).items():
            (directory / name).write_text(text, encoding="utf-8")
            typer.echo(directory / name)
    except OSError as error:
        raise Failure(f"the dashboards cannot be written: {error}") from error


def print_way(port: int, fingerprint: str, namespace: str) -> None:
    """Where the page is and how to log in."""
    token = f"kubectl exec -n {namespace} {CONTROLLER_HOST} -c slurmctld -- scontrol token username=USER lifespan=28800"
    typer.echo(f"https://127.0.0.1:{port}/dashboard/")
    typer.echo("The certificate is for the name inside of the cluster, so the browser asks. It is the right one if its")
    typer.echo(f"SHA-256 fingerprint is\n  {fingerprint}")
    typer.echo(f"A token to log in with, for eight hours:\n  {token}")
    typer.echo("Ctrl-C ends it.")


def _fingerprint(port: int) -> str:
    """Of the certificate behind the port. kubectl has made sure that it is the pod which answers."""
    try:
        pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
    except OSError as error:
        raise Failure(f"the dashboard does not answer: {error}", hint="`slurmstack status` shows its pods") from error
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest().hex(":").upper()


def login(
    user: Annotated[str | None, argument(help="Default: the first user of the stack file.")] = None,
    command: Annotated[list[str] | None, argument(help="Command to run instead of a shell.")] = None,
    config: ConfigOption = None,
    *,
    key: Annotated[str | None, option("--key", "-i", help="Private SSH key file.")] = None,
) -> None:
    """Open an SSH session on a login node, in the jail. The host key is checked against the cluster's own."""
    stack = open_stack(config)
    raise typer.Exit(open_session(reach(stack), stack.config, user=user, key=key, command=command or []))


def dashboard(
    config: ConfigOption = None,
    *,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port of this machine; 0: any that is free.")
    ] = 8443,
    grafana: Annotated[
        Path | None,
        option(
            "--grafana",
            metavar="DIR",
            help="Write the dashboards for a Grafana there instead, as files to import; needs no cluster.",
        ),
    ] = None,
) -> None:
    """Lead a port of this machine to the page with nodes, queue and jobs, until Ctrl-C; says how to log in."""
    stack = open_stack(config)
    if grafana is not None:
        write_dashboards(stack.config, grafana)
        return
    with suppress(KeyboardInterrupt):  # it is how one ends it
        open_dashboard(reach(stack), stack.config, port=port, until=threading.Event())


def kubeconfig(
    config: ConfigOption = None,
    output: Annotated[
        Path | None, option("--output", "-o", metavar="FILE", help="Write it there, for you only.")
    ] = None,
) -> None:
    """Print a kubeconfig for the stack's cluster, for kubectl and other tools."""
    text = kubeconfig_of(open_stack(config))
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_private(output, text)
