"""One node: its namespaces, containerd with our images, kubelet and kube-proxy.

A node whose containerd is gone is treated as a machine that was reset: what is left of its processes is killed, its
namespaces are made anew, and it starts with the disk it had.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from local import configs, namespaces, network, paths, processes, shell
from local.controlplane import Setup
from local.errors import LocalError
from local.tools import CNI_PLUGINS

_CONTAINERD_S = 30


def index_of(name: str) -> int:
    """Give the number in a node's name."""
    return int(name.rpartition("-")[2])


def components(name: str) -> tuple[str, str, str]:
    """Give the names of a node's daemons, in the order in which they start."""
    return (f"containerd-{name}", f"kubelet-{name}", f"kube-proxy-{name}")


def is_running(name: str) -> bool:
    """Tell whether all of the node's daemons run in namespaces that exist."""
    alive = all(processes.is_running(component) for component in components(name))
    return alive and namespaces.exists(name, with_mounts=True) and network.is_connected(name)


def kill(name: str) -> None:
    """Take the node's power away: every process at once, none is asked.

    The cable first: what dies a moment later must not tell anybody that it did, or how the others ended.
    """
    network.disconnect(name)
    for component in components(name):
        processes.stop(component)
    left = processes.kill_all(name, *(f"daemons/{component}" for component in components(name)))
    if left:
        raise LocalError(f"processes of {name} cannot be killed: {sorted(left)}", "they may wait for a disk; try again")
    processes.remove_cgroups(name)
    namespaces.remove(name)


def ensure_machine(setup: Setup, name: str) -> None:
    """Make the node's namespaces and plug it in, where that is missing. Not for several nodes at once."""
    if not processes.is_running(f"containerd-{name}") or not namespaces.exists(name, with_mounts=True):
        kill(name)
        _write_files(setup, name)
        namespaces.create_node(name)
    if not network.is_connected(name):
        network.connect_node(index_of(name), setup.addresses, len(setup.nodes))


def ensure_containerd(setup: Setup, name: str) -> None:
    """Start containerd where it does not run; returns when it serves."""
    component = f"containerd-{name}"
    if not processes.is_running(component):
        processes.prepare_node(name)
        command = [setup.tools.path("containerd"), "--config", f"{paths.node(name)}/containerd.toml"]
        processes.start(component, [*namespaces.enter(name, with_mounts=True), *command], setup.tools.env())
        _wait_for_containerd(setup, name)


def load(setup: Setup, *archives: Path) -> bool:
    """Start containerd where it does not run, and import image archives (docker or OCI) on all nodes that lack them.

    False when all of them had all.
    """

    def on(name: str) -> bool:
        ensure_containerd(setup, name)
        return sum(_import(setup, name, archive) for archive in archives) > 0

    with shell.threads(len(setup.nodes)) as pool:
        return any(list(pool.map(on, setup.nodes)))


def _import(setup: Setup, node: str, archive: Path) -> bool:
    """Import on one node, unless its marker says that this very archive is there."""
    if not archive.is_file():
        raise LocalError(f"there is no image archive {archive}")
    found = archive.stat()
    identity = f"{archive.resolve()} {found.st_size} {found.st_mtime_ns}"
    marker = paths.node(node) / "images" / hashlib.sha256(identity.encode()).hexdigest()[:16]
    if marker.exists():
        return False
    # Followed, so that Ctrl-C ends it: it takes half a minute, and the next start does it again.
    command = _ctr(setup, node, "images", "import", str(archive.resolve()))
    status, said = shell.follow(command, lambda _: None, env=setup.tools.env())
    if status != 0:
        words = " ".join(" ".join(said).split())[-500:]
        raise LocalError(f"{node} could not import {archive.name}: {words}", "is the disk full, the archive whole?")
    # containerd does not sync what it unpacks: after a power cut the marker must not stand for empty files.
    os.sync()
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return True


def ensure_kubelet(setup: Setup, name: str) -> None:
    """Start kubelet and kube-proxy where they do not run."""
    for program in ("kubelet", "kube-proxy"):
        component = f"{program}-{name}"
        if not processes.is_running(component):
            command = [setup.binaries.path(program), *configs.flags(program, setup.addresses, node=index_of(name))]
            processes.start(component, [*namespaces.enter(name, with_mounts=True), *command], setup.tools.env())


def ctr(
    setup: Setup, name: str, arguments: Sequence[str], *, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run containerd's own client on the node, in the namespace of Kubernetes' images."""
    return shell.run(_ctr(setup, name, *arguments), check=False, timeout_s=timeout_s)


def _ctr(setup: Setup, name: str, *arguments: str) -> list[str]:
    client = [setup.tools.path("ctr"), "--address", configs.CONTAINERD_SOCKET, "--namespace", "k8s.io"]
    return [*namespaces.enter(name, with_mounts=True), *client, *arguments]


def _wait_for_containerd(setup: Setup, name: str) -> None:
    deadline = time.monotonic() + _CONTAINERD_S
    component = f"containerd-{name}"
    while ctr(setup, name, ["version"]).returncode != 0:
        if not processes.is_running(component) or time.monotonic() > deadline:
            tail = processes.log_tail(component)
            raise LocalError(f"containerd of {name} does not serve:\n{tail}", f"log: {processes.log_path(component)}")
        time.sleep(0.05)


def _write_files(setup: Setup, name: str) -> None:
    directory = paths.node(name)
    for part in ("kubelet", "cni", "log", "net.d", "pods", "volume-plugins", "containerd", "opt"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    files = configs.node_files(
        setup.addresses, index_of(name), plugins=setup.tools.file(CNI_PLUGINS), mtu=network.mtu()
    )
    for relative, content in files.items():
        (directory / relative).write_text(content)
    servers = "".join(f"nameserver {server}\n" for server in upstream_servers())
    (directory / "resolv.conf").write_text(servers)


def upstream_servers() -> list[str]:
    """Give the host's name servers that pods can reach too."""
    candidates = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
    return configs.upstream_dns(*(Path(path).read_text() for path in candidates if Path(path).is_file()))
