"""The local cluster's life: `up`, `down`, `status`, a hard reset of a node, and images into it.

`up` only starts what is missing. It keeps no plan of its own: each step looks at what is there, so that a first start,
a second one, and one after a crash or a power cut are the same.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from local import (
    build,
    configs,
    controlplane,
    files,
    namespaces,
    network,
    nodes,
    paths,
    pki,
    processes,
    shell,
    teardown,
    tools,
)
from local.addresses import Addresses, from_environment
from local.controlplane import Api, ApiUnreachableError, Setup
from local.errors import LocalError
from local.images import ensure_system_archives, system_archives

if TYPE_CHECKING:
    from local.report import Report, Step

_NODES = ("node-0", "node-1")
_NODES_READY_S = 120
_DNS_READY_S = 120


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock of this slurmstack directory. `LocalError` where another command has it."""

    def refuse() -> None:
        msg = f"another slurmstack command is working on {paths.root()}"
        raise LocalError(msg, "wait for it to end, then run again")

    with files.hold(paths.cache() / "lock", refuse):
        yield


def up(report: Report, images: Callable[[], Path]) -> None:
    """Bring the cluster up, or back up, with these images on its nodes; with a healthy cluster it changes nothing.

    `images` builds an archive where need be and names it; it is called when nothing speaks against a start any more.

    Raises `LocalError` where the machine does not allow it, before anything is touched if that can be known.
    """
    _require_root()
    paths.close()
    with exclusive():
        _require_removed(teardown.finish_removal())
        setup, ours = _prepare(report, images)
        # Always: a firewall that is loaded again (`nft flush ruleset`) takes our rules away and stops no process.
        network.ensure_host(setup.addresses)
        started = not _runs(setup)
        if started:
            with report.step("Start etcd, API server and nodes") as step:
                _start(setup, step, ours)
        network.ensure_routes(setup.addresses, len(setup.nodes))
        with report.step("Wait for nodes and DNS") as step:
            _settle(setup, step)
        if not started:
            with report.step("Import the images on the nodes") as step:
                if not nodes.load(setup, ours):
                    step.note("already there")


def build_all(report: Report, images: Callable[[], Path]) -> None:
    """Fetch and build what `up` needs, and start nothing. Raises `LocalError` as `up` does."""
    _require_root()
    with exclusive():
        shell.use(tools.ensure_tools(report).env())
        _build(report, images)


def down(report: Report, *, purge: bool = False) -> None:
    """Remove the cluster and its data; images and programs stay in the cache unless `purge`."""
    _require_root()
    with exclusive():
        shell.use(tools.available_tools().env())
        with report.step("Stop the local Kubernetes"):
            teardown.stop_everything()
        if lost := teardown.remaining():
            report.info(f"the files of all volumes go with it: {', '.join(lost)}")
        with report.step("Remove its network, mounts and data"):
            problems = teardown.remove_everything()
        if purge:
            with report.step("Remove the caches"):
                problems += teardown.purge()
    _require_removed(problems)


def restart_node(name: str, report: Report) -> None:
    """Reset a node as a machine would be: all its processes die at once, then it starts with the disk it had."""
    _require_root()
    with exclusive():
        setup = _existing(name)
        with report.step(f"Reset {name}"):
            nodes.kill(name)
        with report.step(f"Start {name}") as step:
            nodes.ensure_machine(setup, name)
            nodes.ensure_containerd(setup, name)
            nodes.ensure_kubelet(setup, name)
            _wait_for_nodes(setup, Api(setup.addresses), step)


def load_archive(path: Path) -> bool:
    """Import an image archive on every node; False when all of them had it already."""
    return nodes.load(_existing(), path)


def kubectl_path() -> Path:
    """Give the `kubectl` of the cluster's own version."""
    return Path(build.binaries().path("kubectl"))


def _require_removed(problems: list[str]) -> None:
    if problems:
        raise LocalError("not everything could be removed: " + "; ".join(problems[:10]), "run `down` again")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise LocalError("the local cluster makes network namespaces and mounts: it needs root", "run it with sudo")


def _build(report: Report, images: Callable[[], Path]) -> tuple[build.Binaries, Path]:
    """Build programs and images side by side: the images mostly wait for Debian's packages and the disk."""
    with shell.threads(1) as pool:
        programs = pool.submit(build.ensure_binaries, report)
        ours = images()
        binaries = programs.result()
    ensure_system_archives(report, binaries)
    return binaries, ours


def _prepare(report: Report, images: Callable[[], Path]) -> tuple[Setup, Path]:
    """Have all programs, images and files there, and know that nothing of somebody else's is in the way."""
    recorded = _recorded()
    wanted = recorded or from_environment()
    found = tools.ensure_tools(report)
    shell.use(found.env())
    network.check(wanted)
    binaries, ours = _build(report, images)
    if recorded is None:
        files.write_whole(paths.cluster() / "cluster.json", json.dumps({"addresses": wanted.as_json()}))
    pki.ensure(wanted, len(_NODES))
    pki.publish_admin_kubeconfig()
    return Setup(addresses=wanted, tools=found, binaries=binaries, nodes=_NODES), ours


def _existing(node: str | None = None) -> Setup:
    """Read what the cluster was made with. Raises `LocalError` where there is none, or no such node in it."""
    recorded = _recorded()
    if recorded is None:
        raise LocalError(f"there is no cluster in {paths.root()}", "run `up` first")
    if node is not None and node not in _NODES:
        raise LocalError(f"there is no node {node!r}", f"the nodes are {', '.join(_NODES)}")
    found = tools.available_tools()
    shell.use(found.env())
    return Setup(addresses=recorded, tools=found, binaries=build.binaries(), nodes=_NODES)


def _runs(setup: Setup) -> bool:
    everything = controlplane.is_running() and all(nodes.is_running(name) for name in setup.nodes)
    return everything and network.is_connected(namespaces.CONTROL) and Api(setup.addresses).is_ready()


def _start(setup: Setup, step: Step, archive: Path) -> None:
    """Start all that does not run: the nodes' containerd and images while the API server comes up."""
    controlplane.ensure_network(setup)
    with shell.threads(1) as pool:
        controlplane.ensure_store_and_api(setup)
        for name in setup.nodes:
            nodes.ensure_machine(setup, name)
        everything = [*system_archives(setup.binaries).values(), archive]
        furnished = pool.submit(nodes.load, setup, *everything)
        api = Api(setup.addresses)
        step.progress(1, 3, "API server")
        controlplane.wait_ready(api)
        controlplane.ensure_controllers(setup)
        step.progress(2, 3, "nodes and their images")
        furnished.result()
    for name in setup.nodes:
        nodes.ensure_kubelet(setup, name)


def _settle(setup: Setup, step: Step) -> None:
    """Apply the cluster's own objects, and wait until nodes and DNS answer."""
    api = Api(setup.addresses)
    hosts = configs.host_names(Path("/etc/hosts").read_text())
    objects = {"kind": "List", "items": configs.system_objects(setup.addresses, nodes.upstream_servers(), hosts)}
    kubectl = [str(kubectl_path()), f"--kubeconfig={paths.kubeconfig()}", f"--cache-dir={paths.cluster()}/kubectl"]
    # Server-side: an object that is as it should be is not changed.
    options = ["--server-side", "--force-conflicts", "--field-manager=slurmstack-local"]
    shell.run([*kubectl, "apply", *options, "--filename=-"], stdin=json.dumps({"apiVersion": "v1", **objects}))
    _wait_for_nodes(setup, api, step)
    deadline = time.monotonic() + _DNS_READY_S
    while not _dns_serves(setup.addresses.dns_service):
        step.progress(0, 0, "CoreDNS")
        _require_daemons(setup)
        if time.monotonic() > deadline:
            msg = f"the cluster's DNS does not answer after {_DNS_READY_S} s"
            raise LocalError(
                msg, f"look at: {kubectl_path()} --kubeconfig {paths.kubeconfig()} -n kube-system get pods"
            )
        time.sleep(0.1)


def _dns_serves(address: str) -> bool:
    """Connect to it, which proves route, kube-proxy, pod and CoreDNS: nobody is led to one that is not ready."""
    try:
        socket.create_connection((address, 53), timeout=0.5).close()
    except OSError:
        return False
    return True


def _wait_for_nodes(setup: Setup, api: Api, step: Step) -> None:
    """Wait until nodes are Ready by their own word, not by what the API server kept from before a crash or a reset."""
    deadline = time.monotonic() + _NODES_READY_S
    while True:
        try:
            times = api.ready_times()
            missing = [name for name in setup.nodes if not _is_ready(name, times)]
        except ApiUnreachableError:
            missing = list(setup.nodes)
        if not missing:
            return
        step.progress(len(setup.nodes) - len(missing), len(setup.nodes), "nodes Ready")
        _require_daemons(setup)
        if time.monotonic() > deadline:
            tail = processes.log_tail(f"kubelet-{missing[0]}")
            msg = f"{', '.join(missing)} not Ready after {_NODES_READY_S} s; the kubelet of {missing[0]} says:\n{tail}"
            raise LocalError(msg, f"logs are in {paths.logs()}")
        time.sleep(0.1)


def _is_ready(name: str, times: Mapping[str, float]) -> bool:
    """Whether it has said so since its kubelet was started, in whole seconds, as the API server keeps them."""
    started = processes.started_at(f"kubelet-{name}")
    return started is not None and times.get(name, 0.0) >= int(started)


def _require_daemons(setup: Setup) -> None:
    """Fail where a daemon has ended; but start kubelets again, as a machine's systemd does.

    containerd answers `ctr version` some milliseconds before its CRI service has recovered the node's pods, and a
    kubelet that asks in between gives up.
    """
    controlplane.require_alive([*controlplane.COMPONENTS, *(nodes.components(name)[0] for name in setup.nodes)])
    for name in setup.nodes:
        nodes.ensure_kubelet(setup, name)


def _recorded() -> Addresses | None:
    """Read what the cluster on disk was made with."""
    try:
        return Addresses(**json.loads((paths.cluster() / "cluster.json").read_text())["addresses"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, kw_only=True)
class Component:
    """One daemon: `pid` and `since` only while it runs."""

    name: str
    pid: int | None
    since: dt.datetime | None
    log: Path


@dataclass(frozen=True, kw_only=True)
class Status:
    """The local cluster as it is now. `exists` is False where there is none."""

    exists: bool
    components: tuple[Component, ...] = ()
    nodes_ready: dict[str, bool] = field(default_factory=dict)
    addresses: Addresses | None = None
    kubeconfig: Path
    directory: Path

    @property
    def healthy(self) -> bool:
        """Tell whether everything runs and every node is Ready, which an API server has to say."""
        runs = all(component.pid for component in self.components)
        return runs and bool(self.nodes_ready) and all(self.nodes_ready.values())


def status() -> Status:
    """Read what runs; needs no lock and changes nothing."""
    addresses = _recorded()
    if addresses is None:
        return Status(exists=False, kubeconfig=paths.kubeconfig(), directory=paths.root())
    components = [*controlplane.COMPONENTS, *(part for name in _NODES for part in nodes.components(name))]
    try:
        ready = Api(addresses, timeout_s=2).ready_times()
    except (ApiUnreachableError, LocalError):
        ready = {}
    return Status(
        exists=True,
        components=tuple(_component(name) for name in components),
        nodes_ready={name: name in ready for name in _NODES},
        addresses=addresses,
        kubeconfig=paths.kubeconfig(),
        directory=paths.root(),
    )


def lines(there: Status) -> list[str]:
    """Write the status for a person."""
    if there.addresses is None:
        return [f"no cluster in {there.directory}"]
    found = [f"API server  {there.addresses.api_url}", f"kubeconfig  {there.kubeconfig}"]
    ready = there.nodes_ready.items()
    found += [f"node        {name}: {'Ready' if is_ready else 'not Ready'}" for name, is_ready in ready]
    for component in there.components:
        since = f"pid {component.pid} since {component.since:%H:%M:%S}" if component.since else "not running"
        found.append(f"{component.name:24} {since:30} {component.log}")
    return found


def _component(name: str) -> Component:
    started, pid = processes.started_at(name), processes.pid_of(name)
    return Component(
        name=name,
        pid=pid,
        since=dt.datetime.fromtimestamp(started).astimezone() if started and pid else None,
        log=processes.log_path(name),
    )
