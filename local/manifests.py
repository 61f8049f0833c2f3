"""Kubernetes objects of the local cluster itself: CoreDNS with its rights. Everything else is the user's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from local import versions
from local.configs import CLUSTER_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.addresses import Addresses

Object = dict[str, Any]

_LABELS = {"k8s-app": "kube-dns", "app.kubernetes.io/name": "coredns"}
_META = {"name": "coredns", "namespace": "kube-system", "labels": _LABELS}


def system_objects(
    addresses: Addresses, upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[Object]:
    """List the objects in the order in which they are applied."""
    corefile = corefile_text(upstream, hosts)
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _META},
        _cluster_role(),
        _cluster_role_binding(),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _META, "data": {"Corefile": corefile}},
        _deployment(hashlib.sha256(corefile.encode()).hexdigest()[:16]),
        _service(addresses.dns_service),
    ]


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


def _cluster_role() -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }


def _cluster_role_binding() -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
    }


def _deployment(config_hash: str) -> Object:
    labels = {"k8s-app": "kube-dns"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _META,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"slurmstack.io/corefile": config_hash}},
                "spec": _pod_spec(),
            },
        },
    }


def _pod_spec() -> Object:
    return {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 5,
        # A lost node is given up for DNS after seconds, not after the five minutes of other pods.
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "containers": [
            {
                "name": "coredns",
                "image": versions.COREDNS_IMAGE,
                "imagePullPolicy": "Never",
                "args": ["-conf", "/etc/coredns/Corefile"],
                "resources": {"requests": {"cpu": "10m", "memory": "40Mi"}, "limits": {"memory": "170Mi"}},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
                "ports": [
                    {"containerPort": 53, "name": "dns", "protocol": "UDP"},
                    {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
                ],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 5},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                    "runAsUser": 0,
                },
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }


def _service(address: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": _LABELS},
        "spec": {
            "selector": {"k8s-app": "kube-dns"},
            "clusterIP": address,
            "ports": [
                {"name": "dns", "port": 53, "targetPort": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "targetPort": 53, "protocol": "TCP"},
            ],
        },
    }
