"""The local cluster's life: `up`, `down`, `status`, a hard reset of a node, and images into it.

`up` only starts what is missing. It keeps no plan of its own: each step looks at what is there, so that a first start,
a second one, and one after a crash or a power cut are the same.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from local import addresses as ranges
from local import (
    archives,
    build,
    configs,
    controlplane,
    dns,
    imageseed,
    imagestore,
    lock,
    manifests,
    namespaces,
    network,
    nodes,
    paths,
    pki,
    processes,
    revival,
    shell,
    teardown,
    tools,
)
from local import status as status_module
from local.api import Api, ApiUnreachableError, has_condition
from local.controlplane import Setup
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local.addresses import Addresses
    from local.report import Report, Step
    from local.status import Status

_NODES_READY_S = 90
_DNS_READY_S = 60


def up(report: Report, node_count: int = 2, *, images: Callable[[], Path] | None = None) -> None:
    """Bring the cluster up, or back up, with these images on its nodes; with a healthy cluster it changes nothing.

    `images` builds an archive where need be and names it; it is called when nothing speaks against a start any more.

    Raises `LocalError` where the machine does not allow it, before anything is touched if that can be known.
    """
    _require_root()
    namespaces.check_place()
    with lock.exclusive():
        _require_removed(teardown.finish_removal())
        setup = _prepare(report, node_count)
        ours = [images()] if images else []
        # Always: a firewall that is loaded again (`nft flush ruleset`) takes our rules away and stops no process.
        for warning in network.ensure_host(setup.addresses, setup.tools):
            report.info(f"warning: {warning}")
        started = not _runs(setup)
        if started:
            with report.step("Start etcd, API server and nodes") as step:
                _start(setup, step, ours)
        network.ensure_routes(setup.addresses, setup.nodes)
        with report.step("Wait for nodes and DNS") as step:
            _settle(setup, step)
            if started:
                names = [nodes.name_of(index) for index in range(setup.nodes)]
                revival.await_true_pods(setup, names, Api(setup.addresses), step)
        if not started:
            _load(setup, ours, report)


def down(report: Report, *, purge: bool = False) -> None:
    """Remove the cluster and its data; images and programs stay in the cache unless `purge`."""
    _require_root()
    with lock.exclusive():
        found = tools.available_tools()
        shell.use(found.env())
        with report.step("Stop the local Kubernetes"):
            teardown.stop_everything()
        with report.step("Remove its network, mounts and data"):
            problems = teardown.remove_everything(found)
        if purge:
            with report.step("Remove the caches"):
                problems += teardown.purge()
    _require_removed(problems)


def status() -> Status:
    """Read what runs; needs no lock and changes nothing."""
    recorded = _recorded()
    return status_module.read(*recorded) if recorded else status_module.read(None, 0)


def restart_node(name: str, report: Report) -> None:
    """Reset a node as a machine would be: all its processes die at once, then it starts with the disk it had."""
    _require_root()
    with lock.exclusive():
        setup = _existing()
        index = _index_of(setup, name)
        with report.step(f"Reset {name}"):
            nodes.kill(name)
        with report.step(f"Start {name}") as step:
            nodes.ensure_machine(setup, index)
            nodes.ensure_containerd(setup, index)
            nodes.ensure_kubelet(setup, index)
            api = Api(setup.addresses)
            _wait_for_nodes(setup, api, step)
            revival.await_true_pods(setup, [name], api, step)


def stop_node(name: str, report: Report) -> None:
    """Take a node's power away and leave it off; `up` or `restart_node` brings it back."""
    _require_root()
    with lock.exclusive():
        setup = _existing()
        _index_of(setup, name)
        with report.step(f"Switch {name} off"):
            nodes.kill(name)


def load_archive(path: Path) -> bool:
    """Import an image archive on every node; False when all of them had it already."""
    return bool(imagestore.load(_existing(), path))


def node_containerd_has(references: Iterable[str]) -> bool:
    """Tell whether every node's containerd has all these images."""
    setup = _existing()
    wanted = list(references)
    return all(imagestore.has(setup, nodes.name_of(index), wanted) for index in range(setup.nodes))


def kubectl_path() -> Path:
    """Give the `kubectl` of the cluster's own version."""
    return Path(build.binaries().path("kubectl"))


def _require_removed(problems: list[str]) -> None:
    if problems:
        raise LocalError("not everything could be removed: " + "; ".join(problems[:10]), "run `down` again")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise LocalError("the local cluster makes network namespaces and mounts: it needs root", "run it with sudo")


def _prepare(report: Report, node_count: int) -> Setup:
    """Have all programs and files there, and know that nothing of somebody else's is in the way."""
    wanted = ranges.from_environment()
    recorded = _recorded()
    if recorded is not None and recorded != (wanted, node_count):
        kept, count = recorded
        same = "" if kept == wanted else f", ranges {', '.join(kept.as_json().values())}"
        raise LocalError(f"there is a cluster of {count} nodes{same}", "use the same values, or run `down` first")
    if not 1 <= node_count <= 8:
        raise LocalError(f"{node_count} nodes are not possible", "choose 1 to 8")
    found = tools.ensure_tools(report)
    shell.use(found.env())
    network.check(wanted, found)
    binaries = build.ensure_binaries(report)
    archives.ensure_system_archives(binaries)
    if recorded is None:
        if paths.cluster().exists() and any(paths.cluster().iterdir()):
            raise LocalError(f"{paths.cluster()} holds the remains of a cluster", "run `down` first")
        _record(wanted, node_count)
    pki.ensure(wanted, node_count)
    pki.publish_admin_kubeconfig()
    return Setup(addresses=wanted, tools=found, binaries=binaries, nodes=node_count)


def _existing() -> Setup:
    recorded = _recorded()
    if recorded is None:
        raise LocalError(f"there is no cluster in {paths.root()}", "run `up` first")
    found = tools.available_tools()
    shell.use(found.env())
    return Setup(addresses=recorded[0], tools=found, binaries=build.binaries(), nodes=recorded[1])


def _runs(setup: Setup) -> bool:
    everything = controlplane.is_running() and all(
        nodes.is_running(nodes.name_of(index)) for index in range(setup.nodes)
    )
    return everything and network.is_connected(namespaces.CONTROL) and Api(setup.addresses).is_ready()


def _start(setup: Setup, step: Step, images: list[Path]) -> None:
    """Start all that does not run: the nodes' containerd and images while the API server comes up."""
    controlplane.ensure_network(setup)
    with ThreadPoolExecutor(1) as pool:
        controlplane.ensure_store_and_api(setup)
        for index in range(setup.nodes):
            nodes.ensure_machine(setup, index)
        everything = [*archives.ensure_system_archives(setup.binaries), *images]
        names = [nodes.name_of(index) for index in range(setup.nodes)]
        furnished = pool.submit(imageseed.furnish, setup, names, everything)
        api = Api(setup.addresses)
        step.progress(1, 3, "API server")
        controlplane.wait_ready(api)
        controlplane.ensure_controllers(setup)
        step.progress(2, 3, "nodes and their images")
        furnished.result()
    for index in range(setup.nodes):
        nodes.ensure_kubelet(setup, index)


def _load(setup: Setup, images: list[Path], report: Report) -> None:
    """Import into the nodes that run what they lack."""
    for archive in images:
        with report.step("Import the images on the nodes") as step:
            if not imagestore.load(setup, archive):
                step.note("already there")


def _settle(setup: Setup, step: Step) -> None:
    """Apply the cluster's own objects, and wait until nodes and DNS answer."""
    api = Api(setup.addresses)
    hosts = configs.host_names(Path("/etc/hosts").read_text())
    api.apply(manifests.system_objects(setup.addresses, nodes.upstream_servers(), hosts))
    _wait_for_nodes(setup, api, step)
    deadline = time.monotonic() + _DNS_READY_S
    name = f"kubernetes.default.svc.{configs.CLUSTER_DOMAIN}"
    while not (_dns_available(api) and dns.answers(setup.addresses.dns_service, name)):
        step.progress(0, 0, "CoreDNS")
        _require_daemons(setup)
        if time.monotonic() > deadline:
            msg = f"the cluster's DNS does not answer after {_DNS_READY_S} s"
            raise LocalError(
                msg, f"look at: {kubectl_path()} --kubeconfig {paths.kubeconfig()} -n kube-system get pods"
            )
        time.sleep(0.1)


def _wait_for_nodes(setup: Setup, api: Api, step: Step) -> None:
    """Wait until each node is Ready by its own word: what the API kept from before a crash does not count."""
    deadline = time.monotonic() + _NODES_READY_S
    while True:
        ready = _nodes_ready(setup, api)
        if len(ready) == setup.nodes:
            return
        step.progress(len(ready), setup.nodes, "nodes Ready")
        for index in range(setup.nodes):
            nodes.revive_early_kubelet(setup, index)
        _require_daemons(setup)
        if time.monotonic() > deadline:
            missing = sorted({nodes.name_of(index) for index in range(setup.nodes)} - ready)
            tail = processes.log_tail(f"kubelet-{missing[0]}")
            msg = f"{', '.join(missing)} not Ready after {_NODES_READY_S} s; the kubelet of {missing[0]} says:\n{tail}"
            raise LocalError(msg, f"logs are in {paths.logs()}")
        time.sleep(0.1)


def _nodes_ready(setup: Setup, api: Api) -> set[str]:
    try:
        times = api.ready_times()
    except ApiUnreachableError:
        return set()
    found = set()
    for index in range(setup.nodes):
        name = nodes.name_of(index)
        record = processes.record_of(f"kubelet-{name}")
        # The API keeps whole seconds.
        if record and times.get(name, 0.0) >= int(record.started_at):
            found.add(name)
    return found


def _dns_available(api: Api) -> bool:
    try:
        return has_condition(api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns"), "Available")
    except ApiUnreachableError:
        return False


def _require_daemons(setup: Setup) -> None:
    controlplane.require_alive(controlplane.COMPONENTS)
    for index in range(setup.nodes):
        controlplane.require_alive(nodes.components(nodes.name_of(index)))


def _index_of(setup: Setup, name: str) -> int:
    names = [nodes.name_of(index) for index in range(setup.nodes)]
    if name not in names:
        raise LocalError(f"there is no node {name!r}", f"the nodes are {', '.join(names)}")
    return names.index(name)


def _recorded() -> tuple[Addresses, int] | None:
    """Read what the cluster on disk was made with."""
    try:
        found = json.loads((paths.cluster() / "cluster.json").read_text())
        return ranges.Addresses(**found["addresses"]), int(found["nodes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _record(addresses: Addresses, node_count: int) -> None:
    target = paths.cluster() / "cluster.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".tmp")
    with temporary.open("w") as stream:
        json.dump({"addresses": addresses.as_json(), "nodes": node_count}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(target)
