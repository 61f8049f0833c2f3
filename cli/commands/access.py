"""The command `login`: SSH sessions on a login node."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cli.access.reach import forwarded, host_public_key, login_address, reach
from cli.commands.options import ConfigOption, argument, option
from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.stack import open_stack
from config.cluster import ClusterConfig
from config.errors import unknown_name
from local.report import open_report
from local.tools import ensure_tools
from slurm.local_cluster import login_key
from slurm.names import SSH_PORT

CONNECT_TIMEOUT = 10
"""Seconds until sshd has answered: ssh means its greeting too, which is what fails behind `kubectl port-forward`."""


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


def open_session(
    kubectl: Kubectl, config: ClusterConfig, *, user: str | None, key: str | None, command: Sequence[str]
) -> int:
    """Run ssh to the login Service and return its exit status.

    The local cluster's Service is reached directly, as is a load balancer. Elsewhere the way leads through
    `kubectl port-forward`.
    """
    name = user or next(iter(config.users), None)
    if name is None:
        raise Failure(
            "the stack file has no users", hint="add one: slurmstack:users: {alice: {uid: 10001, ...}}", code=USAGE
        )
    if name not in config.users:
        raise Failure(
            unknown_name(name, config.users, what="a user of the stack file"),
            hint="a command comes after the user: `slurmstack login USER -- COMMAND`",
            code=USAGE,
        )
    namespace = config.cluster.namespace
    address, public_key = login_address(kubectl, namespace), host_public_key(kubectl, namespace)
    if address is None or public_key is None:
        raise Failure(f"there is no login Service in namespace {namespace}", hint="`slurmstack up` makes it")
    direct = config.cloud.is_local or config.login.service_type == "LoadBalancer"
    with (
        _endpoint(kubectl, namespace, address, direct=direct) as (host, port),
        tempfile.TemporaryDirectory() as directory,
    ):
        known_hosts = Path(directory) / "known_hosts"
        known_hosts.write_text(f"slurmstack-login {public_key}\n", encoding="utf-8")
        arguments = ssh_arguments(known_hosts, identity(config, key), port)
        return subprocess.run(
            [ssh_program(is_local=config.cloud.is_local), *arguments, f"{name}@{host}", *command], check=False
        ).returncode


def ssh_arguments(known_hosts: Path, key: str | None, port: int) -> list[str]:
    """Options for ssh: the cluster's own host key and no other, and one identity if one is given."""
    options = {
        "UserKnownHostsFile": known_hosts, "HostKeyAlias": "slurmstack-login", "StrictHostKeyChecking": "yes",
        "ConnectTimeout": CONNECT_TIMEOUT, "LogLevel": "ERROR",
    }  # fmt: skip
    named = ["-i", key, "-o", "IdentitiesOnly=yes"] if key else []
    return [*named, "-p", str(port), *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


def identity(config: ClusterConfig, key: str | None) -> str | None:
    """The private key to use: the named one, else the local cluster's own where that is the cluster."""
    if key is not None:
        return key
    return str(login_key()) if config.cloud.is_local and login_key().exists() else None


def ssh_program(*, is_local: bool) -> str:
    """The ssh command; for the local cluster one is fetched if the machine has none."""
    found = shutil.which("ssh")
    if found is None and is_local:
        return ensure_tools(open_report()).path("ssh")
    if found is None:
        raise Failure("there is no ssh command on this machine", hint="install it (Debian: openssh-client)")
    return found


@contextmanager
def _endpoint(kubectl: Kubectl, namespace: str, address: str, *, direct: bool) -> Iterator[tuple[str, int]]:
    if direct:
        yield address, SSH_PORT
        return
    with forwarded(kubectl, namespace, "login", SSH_PORT) as port:
        yield "127.0.0.1", port
