"""The rules of the local cluster's network, loaded by the real nft into network namespaces that play the machines."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from local import addresses
from local.network import table_text
from local.report import PlainReport
from local.tools import ensure_tools

RANGES = addresses.from_environment({})
NODE, CONTROL_PLANE = RANGES.node(0), RANGES.control_plane
NETWORK = f"""
set -e
ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward
ip link add name slurmstack0 type bridge; ip addr add {RANGES.host}/24 dev slurmstack0; ip link set slurmstack0 up
ip link add cable type veth peer name eth0 netns $NODE; ip link set cable master slurmstack0 up
ip link add lan type veth peer name eth0 netns $OUTSIDE; ip addr add 192.0.2.1/24 dev lan; ip link set lan up
nsenter --target $NODE --net ip addr add {NODE}/24 dev eth0
nsenter --target $NODE --net ip link set eth0 up
nsenter --target $NODE --net ip route add default via {RANGES.host}
nsenter --target $OUTSIDE --net ip addr add 192.0.2.2/24 dev eth0
nsenter --target $OUTSIDE --net ip link set eth0 up
nsenter --target $OUTSIDE --net ip route add {RANGES.nodes} via 192.0.2.1
"""
LISTEN = "import socket; s = socket.create_server(('', 6443)); print(flush=True); [s.accept() for _ in range(9)]"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 6443), timeout=float(sys.argv[2]))"
Network = dict[str, subprocess.Popen[bytes]]


def enter(process: subprocess.Popen[bytes], *command: str) -> list[str]:
    return ["nsenter", f"--target={process.pid}", "--net", "--mount", *command]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """A machine with the bridge, a node behind it, and another machine of its LAN that has a route to the node."""
    made: Network = {}
    command = ["unshare", "--net", "--mount", "--propagation=private", "sh", "-c"]
    for name in ("host", "node", "outside"):
        script = f'mount -t sysfs sysfs /sys; echo; exec python3 -c "{LISTEN}; input()"'
        made[name] = subprocess.Popen([*command, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for process in made.values():
            assert process.stdout is not None
            assert process.stdout.readline() + process.stdout.readline() == b"\n\n"
        env = {"NODE": str(made["node"].pid), "OUTSIDE": str(made["outside"].pid)}
        tools = ensure_tools(PlainReport())
        subprocess.run(enter(made["host"], "sh", "-c", NETWORK), check=True, env={**tools.env(), **env})
        yield made
    finally:
        for process in made.values():
            process.kill()
            process.wait()


def load(network: Network, text: str) -> None:
    tools = ensure_tools(PlainReport())
    command = enter(network["host"], tools.path("nft"), "-f", "-")
    subprocess.run(command, input=text.encode(), check=True, env=tools.env())


def reaches(network: Network, source: str, address: str, seconds: float = 10) -> bool:
    command = enter(network[source], "python3", "-c", CONNECT, address, str(seconds))
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_who_may_begin_a_connection_over_the_bridge(network: Network) -> None:
    text = table_text(RANGES)
    assert reaches(network, "outside", NODE), "without the rules a route is all that it takes"

    load(network, text)

    assert not reaches(network, "outside", NODE, seconds=1)
    assert reaches(network, "host", NODE)
    assert reaches(network, "node", "192.0.2.2"), "the way out is open, and answers come back"
    load(network, text)
    assert reaches(network, "node", "192.0.2.2"), "loaded a second time it is the same"
