"""Pods of a stack as network namespaces around one router, with Felix in it: Calico's agent, which enforces policies.

`CALICO` names a directory with `calico-felix` and `crd/`, Calico's definitions of resources (how both are built:
docs/decisions/security.md, 0030). The API server is the local cluster's own program.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from local import build
from local.tools import available_tools
from tests.graph.reachability import End
from tests.slurm.pod import wait_until

CALICO = os.environ.get("CALICO", "")
NAMESPACE, NODE = "slurm", "node-0"

_HOLD = "mount -t sysfs sysfs /sys; ip link set lo up; echo 1; exec sleep infinity"
_LISTEN = """
import select, socket, sys
listening = [socket.create_server(("", int(port)), backlog=512) for port in sys.argv[1:]]
print("up", flush=True)
while True:
    for one in select.select(listening, [], [])[0]:
        one.accept()[0].close()
"""
_CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
source, targets = json.load(sys.stdin)
def reaches(target):
    with socket.socket() as connection:
        connection.settimeout(2.5)
        try:
            if source:
                connection.bind((source, 0))
            connection.connect(tuple(target))
        except OSError:
            return False
        return True
with ThreadPoolExecutor(160) as pool:
    print(json.dumps(list(pool.map(reaches, targets))))
"""
_FELIX = {
    "DATASTORE_TYPE": "kubernetes", "FELIX_DATASTORETYPE": "kubernetes", "FELIX_FELIXHOSTNAME": NODE,
    "FELIX_NFTABLESMODE": "Enabled", "FELIX_ROUTESOURCE": "WorkloadIPs", "FELIX_IPV6SUPPORT": "false",
    "FELIX_BPFENABLED": "false", "FELIX_XDPENABLED": "false", "FELIX_USAGEREPORTINGENABLED": "false",
    "FELIX_LOGFILEPATH": "none", "FELIX_LOGSEVERITYFILE": "none", "FELIX_LOGSEVERITYSYS": "none",
    # Built without cgo it ends in a stub of libbpf otherwise.
    "FELIX_DebugSkipCTLBCleanup": "true",
}  # fmt: skip


class Wires:
    """The router, the pods, and what is outside; use it as a context manager."""

    def __init__(self, work: Path, pods: Mapping[str, End], outside: Sequence[str], ports: Sequence[int]) -> None:
        self._work, self._labels, self._outside, self._ports = work, pods, outside, ports
        self._tools = available_tools()
        self._env = self._tools.env()
        self._running = ExitStack()
        self._held: dict[str, int] = {}
        self.addresses = {name: f"10.197.64.{10 + number}" for number, name in enumerate(sorted(pods))}

    def __enter__(self) -> Self:
        try:
            self._hold("router")
            self._in("router", "sh", "-ec", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self._plug_outside()
            for name, address in self.addresses.items():
                self._plug(name, address)
            self._start_api_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def enforce(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Give Kubernetes some objects, NetworkPolicies among them, and start Felix; returns when it enforces."""
        self._apply(objects)
        argv = self._inside("router", [f"{CALICO}/calico-felix"])
        self._start(argv, "felix", {**_FELIX, "KUBECONFIG": str(self._work / "kubeconfig")})

        def known() -> bool:
            rules = self._in("router", self._tools.path("nft"), "list", "ruleset")
            return all(f"filter-cali-tw-{_cable(name)}" in rules for name in self.addresses)

        wait_until(known, lambda: (self._work / "felix.log").read_text()[-3000:], 60)

    def reaches(self, source: str) -> dict[tuple[str, str, int], bool]:
        """For each target and port whether a connection of `source`, a pod or an address outside, comes through."""
        names = [name for name in self.addresses if name != source]
        targets = [(name, self.addresses[name], port) for name in names for port in self._ports]
        if source in self.addresses:
            targets += [(address, address, port) for address in self._outside for port in self._ports]
        asked = json.dumps(["" if source in self.addresses else source, [[where, port] for _, where, port in targets]])
        holder = source if source in self.addresses else "outside"
        found = json.loads(self._in(holder, sys.executable, "-c", _CONNECT, stdin=asked))
        return {(source, name, port): there for (name, _, port), there in zip(targets, found, strict=True)}

    # ---------------------------------------------------------------- namespaces and cables

    def _hold(self, name: str) -> None:
        argv = ["unshare", "--net", "--mount", "--propagation=private", "sh", "-ec", _HOLD]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        self._running.callback(_end, process)
        assert process.stdout is not None
        process.stdout.readline()
        self._held[name] = process.pid

    def _plug(self, name: str, address: str) -> None:
        cable = _cable(name)
        self._hold(name)
        self._in("router", *_pair(cable, self._held[name]))
        up = f"ip link set {cable} up; echo 1 > /proc/sys/net/ipv4/conf/{cable}/proxy_arp"
        self._in("router", "sh", "-ec", f"{up}; ip route add {address}/32 dev {cable}")
        # As Calico's own CNI plugin does it: the next hop is nobody's, and the router answers for it.
        away = "ip route add 169.254.1.1 dev eth0 scope link; ip route add default via 169.254.1.1 dev eth0"
        self._in(name, "sh", "-ec", f"ip addr add {address}/32 dev eth0; ip link set eth0 up; {away}")
        self._listen(name)

    def _plug_outside(self) -> None:
        self._hold("outside")
        self._in("router", *_pair("out", self._held["outside"]))
        router = "ip addr add 192.0.2.1/24 dev out; ip link set out up; ip route add default via 192.0.2.2"
        self._in("router", "sh", "-ec", router)
        own = "".join(f"; ip addr add {address}/32 dev lo" for address in self._outside)
        outside = "ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.1"
        self._in("outside", "sh", "-ec", outside + own)
        self._listen("outside")

    def _listen(self, name: str) -> None:
        log = f"listens-{name}"
        self._start(self._inside(name, [sys.executable, "-c", _LISTEN, *map(str, self._ports)]), log)
        wait_until(lambda: "up" in (self._work / f"{log}.log").read_text(), f"{name} listens")

    # ---------------------------------------------------------------- Kubernetes

    def _start_api_server(self) -> None:
        subprocess.run(["openssl", "genrsa", "-out", "sa.key", "2048"], check=True, capture_output=True, cwd=self._work)
        (self._work / "tokens").write_text("a-token,admin,admin,system:masters\n")
        urls = ["--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379"]
        etcd = [self._tools.path("etcd"), f"--data-dir={self._work}/etcd", "--unsafe-no-fsync", *urls]
        self._start(self._inside("router", etcd), "etcd")
        server = [
            build.binaries().path("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", "--secure-port=6443", "--service-cluster-ip-range=10.96.0.0/16",
            f"--cert-dir={self._work}/certs", "--service-account-issuer=https://x",
            f"--service-account-key-file={self._work}/sa.key",
            f"--service-account-signing-key-file={self._work}/sa.key", f"--token-auth-file={self._work}/tokens",
            "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount",
        ]  # fmt: skip
        self._start(self._inside("router", server), "apiserver")
        cluster = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": cluster}], "users": [{"name": "x", "user": {"token": "a-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }  # fmt: skip
        (self._work / "kubeconfig").write_text(json.dumps(config))
        why = lambda: (self._work / "apiserver.log").read_text()[-2000:]  # noqa: E731
        wait_until(lambda: self._kubectl("get", "--raw", "/readyz", check=False) == "ok", why, 120)
        self._kubectl("apply", "--server-side", "-f", f"{CALICO}/crd")

    def _apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        crd = "crd.projectcalico.org/v1"
        own: list[Mapping[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
            {"apiVersion": crd, "kind": "ClusterInformation", "metadata": {"name": "default"},
             "spec": {"datastoreReady": True, "clusterType": "k8s"}},
            {"apiVersion": crd, "kind": "Tier", "metadata": {"name": "default"},
             "spec": {"order": 1_000_000, "defaultAction": "Deny"}},
        ]  # fmt: skip
        spec = {"nodeName": NODE, "containers": [{"name": "x", "image": "x"}]}
        own += [
            {"apiVersion": "v1", "kind": "Pod", "spec": spec,
             "metadata": {"name": f"{name}-0", "namespace": NAMESPACE, "labels": dict(end.labels)}}
            for name, end in self._labels.items()
        ]  # fmt: skip
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*own, *objects]})
        wait_until(lambda: "tiers.crd" in self._kubectl("get", "crd", "-o", "name"), "Calico's resources are known")
        self._kubectl("apply", "-f", "-", stdin=items)
        for name, address in self.addresses.items():
            status = json.dumps({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
            change = ("--subresource=status", "--type=merge", "-p", status)
            self._kubectl("patch", "pod", f"{name}-0", "-n", NAMESPACE, *change)

    def _kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        kubectl = [build.binaries().path("kubectl"), f"--kubeconfig={self._work}/kubeconfig"]
        return self._in("router", *kubectl, *arguments, stdin=stdin, check=check)

    # ---------------------------------------------------------------- processes

    def _inside(self, name: str, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self._held[name]}", "--net", "--mount", *argv]

    def _in(self, name: str, *argv: str, stdin: str | None = None, check: bool = True) -> str:
        command = self._inside(name, argv)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=self._env, check=False)
        assert not check or done.returncode == 0, f"{' '.join(argv)[:200]}: {done.stderr[-2000:]}"
        return done.stdout

    def _start(self, argv: Sequence[str], log: str, env: Mapping[str, str] | None = None) -> None:
        with (self._work / f"{log}.log").open("wb") as file:
            process = subprocess.Popen(
                argv, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**self._env, **(env or {})}
            )
        self._running.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _cable(name: str) -> str:
    """As Felix looks for it."""
    return "cali" + hashlib.sha1(f"{NAMESPACE}.{name}-0".encode(), usedforsecurity=False).hexdigest()[:11]


def _pair(name: str, peer: int) -> list[str]:
    return ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(peer)]
