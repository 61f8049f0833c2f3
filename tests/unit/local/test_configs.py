"""Configuration files: what pods are told of the host's names."""

from __future__ import annotations

from local import addresses, configs


def test_a_name_server_on_the_hosts_loopback_is_not_handed_to_pods() -> None:
    stub = "# comment\nnameserver 127.0.0.53\noptions edns0\n"
    real = "nameserver 192.168.1.1\nnameserver 2001:db8::1\n"
    assert configs.upstream_dns(stub, real) == ["192.168.1.1", "2001:db8::1"]
    assert configs.upstream_dns(stub) == []


def test_only_host_names_that_mean_something_in_a_pod_are_handed_on() -> None:
    hosts = "127.0.0.1 localhost\n127.0.1.1 laptop\n::1 ip6-localhost\n10.0.0.9 mirror mirror.lan # lab\n\n"
    assert configs.host_names(hosts) == [("10.0.0.9", ["mirror", "mirror.lan"])]


def test_a_changed_name_server_restarts_coredns() -> None:
    def annotation(upstream: str) -> str:
        deployment = configs.system_objects(addresses.from_environment({}), [upstream])[4]
        return str(deployment["spec"]["template"]["metadata"]["annotations"])

    assert annotation("192.0.2.1") != annotation("192.0.2.2")
