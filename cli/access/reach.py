"""The ways to a stack's cluster: its kubeconfig, wherever that comes from; its addresses; a port that leads into it."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cli.engine import pulumi as engine
from cli.errors import Failure
from cli.kubectl.client import Kubectl, connect, find_program, message
from cli.stack import Stack
from config.sections.cloud import NebiusCloud
from local.files import write_whole

OUTPUT = "kubeconfig"
"""Output of a stack whose cloud makes the cluster. It names a command that gets a token; there is no secret in it."""


def reach(stack: Stack, *, seconds: float = 600, ask: bool = True) -> Kubectl:
    """Kubectl for the cluster of a stack. Raises Failure if there is none, or if it does not answer in that time.

    `ask`: whether a cluster that is there anyway is asked; who asks it other things at once saves that time.
    """
    if not ask and not isinstance(stack.config.cloud, NebiusCloud):
        return connect(stack.config.cloud, ask=False, standby=stack.config.controller.standby)
    kubectl = reach_if_made(stack, seconds=seconds)
    if kubectl is None:
        raise Failure(
            f"the stack {stack.name!r} has no cluster yet",
            hint="`slurmstack up` makes it, with machines and file systems; `slurmstack preview` shows what that is",
        )
    return kubectl


def whereabouts(stack: Stack, kubectl: Kubectl | None) -> str:
    """Which cluster that is, for a question: all that could have been another one."""
    context = f" of context {kubectl.context}" if kubectl is not None else ""
    return f"namespace {stack.config.cluster.namespace}{context} (stack {stack.name}, {stack.file})"


def reach_if_made(stack: Stack, *, seconds: float = 600) -> Kubectl | None:
    """The same; None where the stack makes its cluster, and has not made it yet."""
    cloud, standby = stack.config.cloud, stack.config.controller.standby
    if not isinstance(cloud, NebiusCloud):
        return connect(cloud, seconds=seconds, standby=standby)
    file = keep_kubeconfig(stack)
    if file is None:
        return None
    context = _context(file)
    kubectl = Kubectl(program=find_program(), context=context, kubeconfig=str(file), standby=standby)
    answer = kubectl.run("get", "--raw", "/readyz", check=False, seconds=seconds)
    if answer.returncode != 0:
        raise Failure(
            f"the cluster {context!r} does not answer: {message(answer.stderr)}",
            hint="`slurmstack doctor cloud` tries the credentials; cloud.kubernetes.allowed_cidrs must let us in",
        )
    return kubectl


def keep_kubeconfig(stack: Stack) -> Path | None:
    """The kubeconfig file of a cluster that the stack makes, for its owner only; None if there is no cluster yet.

    It is read from the stack each time; without the pulumi command the one of the last time serves.
    """
    file = stack.private / OUTPUT
    if shutil.which("pulumi") is None:
        if file.exists():
            return file
        raise Failure(
            "the cluster's kubeconfig is an output of its stack, and there is no pulumi command to read it",
            hint=f"install pulumi, or copy what `pulumi stack output kubeconfig` prints elsewhere to {file}",
        )
    text = engine.output(stack, OUTPUT)
    if text is None:
        return None
    try:
        write_whole(file, text)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror or error}") from error
    return file


def _context(file: Path) -> str:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        return str(document["current-context"])
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise Failure(f"{file} is no kubeconfig with a current-context", hint="delete it and try again") from error


def login_address(kubectl: Kubectl, namespace: str) -> str | None:
    """Address of the login Service."""
    found = kubectl.items("service", "login", "-n", namespace)
    return address_of(found[0]) if found else None


def address_of(service: Mapping[str, Any]) -> str:
    """Address of a Service: its load balancer's where it has one, else the cluster IP."""
    for ingress in service.get("status", {}).get("loadBalancer", {}).get("ingress", []):
        return str(ingress.get("ip") or ingress.get("hostname"))
    return str(service["spec"]["clusterIP"])


def host_public_key(kubectl: Kubectl, namespace: str) -> str | None:
    """The SSH host key of the login nodes as in `known_hosts`, from the cluster itself."""
    found = kubectl.items("secret", "ssh-host-keys", "-n", namespace)
    if not found:
        return None
    # Loaded where it is needed: `status` asks for an address only.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(base64.b64decode(found[0]["data"]["ssh_host_ed25519_key"]), None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@contextmanager
def forwarded(kubectl: Kubectl, namespace: str, service: str, target: int) -> Iterator[int]:
    """A port on 127.0.0.1 that leads to a Service, and is open. Raises Failure."""
    command = [*kubectl.command(), "port-forward", "-n", namespace, f"service/{service}", f":{target}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        assert forward.stderr is not None
        try:
            # `Forwarding from 127.0.0.1:40123 -> 22`, when it is open.
            opened = re.search(r":(\d+) ->", forward.stdout.readline())
            if opened is None:
                raise Failure(f"kubectl port-forward ended: {forward.stderr.read().strip()}")
            yield int(opened[1])
        finally:
            forward.terminate()
