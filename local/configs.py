"""Configuration files and command lines of the Kubernetes components, and the cluster's own objects: CoreDNS.

Pure functions of the addresses.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml

from local import cgroups, paths, versions
from local.addresses import Addresses

CLUSTER_DOMAIN = "cluster.local"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""In the node's mount namespace, whose `/run` is its own."""


def etcd_arguments(data: Path) -> list[str]:
    """Give etcd's flags; it listens only inside the control plane's network namespace, and syncs to disk as usual."""
    return [
        "--name=slurmstack",
        f"--data-dir={data}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=slurmstack=http://127.0.0.1:2380",
        "--logger=zap",
        "--log-outputs=stderr",
    ]


def apiserver_arguments(addresses: Addresses, pki: Path) -> list[str]:
    """Give the API server's flags."""
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={addresses.control_plane}",
        f"--bind-address={addresses.control_plane}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={addresses.services}",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        # Else `kubectl exec` would look the node's name up in the host's DNS.
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki}/service-accounts.key",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--event-ttl=1h",
        "--profiling=false",
    ]


def controller_manager_arguments(pki: Path) -> list[str]:
    """Give the controller manager's flags. Node ranges are ours (see `Addresses.pods_of`), not allocated by it."""
    config = f"{pki}/controller-manager.kubeconfig"
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        # Its controllers start one after the other, each with an account of its own: 6 s at the default 20 a second.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        # A claim whose volume is written to by another controller at the same moment waits for the next look: 15 s.
        "--pvclaimbinder-sync-period=1s",
        "--controllers=*,-node-ipam-controller,-node-route-controller,-service-lb-controller",
        "--profiling=false",
    ]


def scheduler_arguments(pki: Path) -> list[str]:
    """Give the scheduler's flags."""
    config = f"{pki}/scheduler.kubeconfig"
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--profiling=false",
    ]


def kubelet_config(addresses: Addresses, name: str, directory: Path, pki: Path) -> str:
    """Write the kubelet's configuration.

    Pods are evicted only when the disk is really full (100 MB), not at a share of it: a developer's disk is often
    at 80 %, and images here come from no registry, so that one that was collected would be gone for good.
    """
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-{name}-server.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-{name}-server.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.node_cgroup(name),
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True},
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [addresses.dns_service],
        "resolvConf": f"{directory}/resolv.conf",
        "podLogsDir": f"{directory}/pods",
        "volumePluginDir": f"{directory}/volume-plugins",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "100Mi", "imagefs.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": False,
        "maxPods": 110,
        # Values of the control plane's size, not of a real node's: short waits, since a person is waiting.
        "syncFrequency": "30s",
        "logging": {"verbosity": 1},
    }
    return yaml.safe_dump(document, sort_keys=False)


def kubelet_arguments(addresses: Addresses, index: int, directory: Path, pki: Path) -> list[str]:
    """Give the kubelet's flags; the rest is in its file."""
    name = f"node-{index}"
    return [
        f"--config={directory}/kubelet.yaml",
        f"--kubeconfig={pki}/kubelet-{name}.kubeconfig",
        f"--hostname-override={name}",
        f"--node-ip={addresses.node(index)}",
        "--node-labels=slurmstack.io/local=true",
    ]


def proxy_config(addresses: Addresses, name: str, pki: Path) -> str:
    """Write kube-proxy's configuration.

    What comes from outside the pod range is masqueraded: so a person on the host can open a Service's address. The
    conntrack values leave the host's limits alone.
    """
    document: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{pki}/kube-proxy.kubeconfig"},
        "hostnameOverride": name,
        "mode": "nftables",
        "clusterCIDR": addresses.pods,
        "detectLocalMode": "ClusterCIDR",
        "bindAddress": "0.0.0.0",  # noqa: S104 - inside the node's own network namespace
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "100ms"},
    }
    return yaml.safe_dump(document, sort_keys=False)


def containerd_config(directory: Path, cni_plugins: Path) -> str:
    """Write containerd's configuration (version 2: containerd 1.6, 1.7 and 2.x read it).

    Its state stays in `/run/containerd`, which is the node's own: the shims' sockets are there whatever is set.
    AppArmor is left out, since the profile would stay loaded in the host's kernel.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{directory}/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[debug]
level = "warn"

[plugins."io.containerd.internal.v1.opt"]
path = "{directory}/opt"

[{cri}]
sandbox_image = "{versions.PAUSE_IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
max_container_log_line_size = 262144

[{cri}.cni]
bin_dir = "{cni_plugins}"
conf_dir = "{directory}/net.d"

[{cri}.containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def cni_config(pod_range: str, mtu: int) -> str:
    """Write the pods' network: a cable from each pod straight to the node, no bridge in it.

    On a bridge, two pods of one node would answer each other past the node's address translation (unless the host has
    br_netfilter loaded), and a Service would not work between them.
    """
    document = {
        "cniVersion": "0.4.0",
        "name": "slurmstack",
        "plugins": [
            {
                "type": "ptp",
                "mtu": mtu,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    # In the node's own /run: after a crash no address stays taken by a pod that is gone.
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    return json.dumps(document, indent=2)


def upstream_dns(*resolv_confs: str) -> list[str]:
    """Pick name servers that a pod can reach: a loopback address (systemd-resolved) is the host's alone."""
    for text in resolv_confs:
        servers = re.findall(r"^\s*nameserver\s+(\S+)", text, re.MULTILINE)
        usable = [server for server in servers if not re.match(r"127\.|::1$|0\.0\.0\.0$|.*%", server)]
        if usable:
            return usable[:3]
    return []


def host_names(hosts: str) -> list[tuple[str, list[str]]]:
    """Pick the entries of `/etc/hosts` that mean something in a pod too: what is not loopback and not link-local."""
    rows = [line.partition("#")[0].split() for line in hosts.splitlines()]
    return [(row[0], row[1:]) for row in rows if len(row) > 1 and re.match(r"(?!127\.|169\.254\.)\d+\.", row[0])]


def system_objects(
    addresses: Addresses, upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[dict[str, Any]]:
    """List the objects in the order in which they are applied."""
    corefile = corefile_text(upstream, hosts)
    text = Template((paths.SOURCES / "coredns" / "objects.yaml").read_text(encoding="utf-8")).substitute(
        corefile=json.dumps(corefile),
        digest=hashlib.sha256(corefile.encode()).hexdigest()[:16],
        image=versions.COREDNS_IMAGE,
        address=addresses.dns_service,
    )
    return list(yaml.safe_load_all(text))


def corefile_text(upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """Write CoreDNS's configuration. Answers live 5 s: a pod that moved is found again soon."""
    lines = [
        ".:53 {",
        "    errors",
        "    health {",
        "        lameduck 2s",
        "    }",
        "    ready",
        f"    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{",
        "        pods insecure",
        "        fallthrough in-addr.arpa",
        "        ttl 5",
        "    }",
    ]
    if hosts:
        lines += ["    hosts {", "        ttl 60"]
        lines += [f"        {address} {' '.join(names)}" for address, names in hosts]
        lines += ["        fallthrough", "    }"]
    if upstream:
        lines += [f"    forward . {' '.join(upstream)}"]
    lines += ["    cache 30", "    loop", "}"]
    return "\n".join(lines) + "\n"
