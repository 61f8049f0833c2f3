from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

from local import addresses, configs

RANGES = addresses.from_environment({})
NODE, PKI = Path("/l/nodes/node-1"), Path("/l/pki")


def test_a_full_developer_disk_evicts_no_pod_and_collects_no_image() -> None:
    kubelet = yaml.safe_load(configs.kubelet_config(RANGES, "node-1", NODE, PKI))
    assert kubelet["imageGCHighThresholdPercent"] == 100
    assert not any("%" in value for value in kubelet["evictionHard"].values())


def test_containerd_writes_nothing_outside_the_node() -> None:
    config = tomllib.loads(configs.containerd_config(NODE, Path("/usr/lib/cni")))
    assert config["version"] == 2
    assert config["root"].startswith(str(NODE))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["netns_mounts_under_state_dir"] is True
    assert config["plugins"]["io.containerd.internal.v1.opt"]["path"].startswith(str(NODE))


def test_pods_have_no_bridge_between_them() -> None:
    # Two pods of one node on a bridge answer past the address translation of a Service.
    network = json.loads(configs.cni_config("10.1.2.0/24", 1400))
    assert [plugin["type"] for plugin in network["plugins"]] == ["ptp"]
    assert network["plugins"][0]["mtu"] == 1400


def test_kubectl_exec_does_not_look_up_the_nodes_name() -> None:
    arguments = configs.apiserver_arguments(RANGES, PKI)
    assert "--kubelet-preferred-address-types=InternalIP" in arguments


def test_a_name_server_on_the_hosts_loopback_is_not_handed_to_pods() -> None:
    stub = "# comment\nnameserver 127.0.0.53\noptions edns0\n"
    real = "nameserver 192.168.1.1\nnameserver 2001:db8::1\n"
    assert configs.upstream_dns(stub, real) == ["192.168.1.1", "2001:db8::1"]
    assert configs.upstream_dns(stub) == []


def test_only_host_names_that_mean_something_in_a_pod_are_handed_on() -> None:
    hosts = "127.0.0.1 localhost\n127.0.1.1 laptop\n::1 ip6-localhost\n10.0.0.9 mirror mirror.lan # lab\n\n"
    assert configs.host_names(hosts) == [("10.0.0.9", ["mirror", "mirror.lan"])]
