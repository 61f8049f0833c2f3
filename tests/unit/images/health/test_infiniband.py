"""InfiniBand ports, as the kernel shows them below /sys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from images.common.health.contract import Node, Result
from images.health.checks import infiniband
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import Like, outcomes, words

Ports = Mapping[str, Mapping[str, str]]
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}
DISABLED = {**DOWN, "phys_state": "3: Disabled"}
ETHERNET = {"link_layer": "Ethernet", "state": "1: DOWN", "rate": "25 Gb/sec (1X EDR)"}
PORTS = [f"mlx5_{index}" for index in range(8)]


class Machine:
    """Writes what the kernel would show of eight ports at 400 Gbit/s."""

    def __init__(self, root: Path, ports: list[str]) -> None:
        self.root = root
        self.at = 1_795_000_000.0
        self.node = Node(name="gpu-0", gpus=8, infiniband=True, root=root, state=root / "state")
        (root / "sys/class").mkdir(parents=True)
        for name in ports:
            self.port(name)

    def path(self, device: str) -> Path:
        return self.root / "sys/class/infiniband" / device / "ports/1"

    def port(self, device: str, board: str = "MT_0000000838", **files: str) -> None:
        """A port as it should be, but for `files`."""
        path = self.path(device)
        path.mkdir(parents=True, exist_ok=True)
        (path / "../../board_id").write_text(f"{board}\n")
        (path / "../../hca_type").write_text("MT4129\n")
        texts = {
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            **files,
        }
        for name, text in texts.items():
            (path / name).write_text(f"{text}\n")

    def count(self, device: str, downs: int) -> None:
        """So often the link went down since the driver has started."""
        counter = self.path(device) / "counters/link_downed"
        counter.parent.mkdir(exist_ok=True)
        counter.write_text(f"{downs}\n")

    def look(self, **limits: float) -> Result:
        """What the check finds. It starts no program, so none can hang."""
        runner = FakeRunner()
        result = infiniband.run(replace(self.node, limits={"infiniband": limits}), runner)
        assert runner.commands == []
        return result


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Eight ports that are well, with a clock."""
    machine = Machine(tmp_path, PORTS)
    monkeypatch.setattr("time.time", lambda: machine.at)
    return machine


@outcomes(
    "ports, limits",
    [
        ("ok", {}, {}),
        ("fail [hardware]: mlx5_3: DOWN, Polling; mlx5_4: DOWN, Disabled", {"mlx5_3": DOWN, "mlx5_4": DISABLED}, {}),
        ("fail [node]: mlx5_0, ... mlx5_7: INIT, LinkUp", {port: {"state": "2: INIT"} for port in PORTS}, {}),
        ("ok", {"mlx5_8": DISABLED}, {"ports": 8}),
        (
            "fail [hardware]: 7 of 8 ports are active; mlx5_0: DOWN, Polling...",
            {"mlx5_0": DOWN, "mlx5_8": DISABLED},
            {"ports": 8},
        ),
        ("fail [hardware]: mlx5_5: 200 of 400 Gbit/s", {"mlx5_5": {"rate": "200 Gb/sec (2X NDR)"}}, {}),
        ("ok", {"mlx5_8": {"rate": "200 Gb/sec (4X HDR)", "board": "MT_0000000223"}}, {}),  # cards of another kind
        ("fail [hardware]: mlx5_0: 400 of 800 Gbit/s; ...", {}, {"gigabits": 800}),
        ("ok", {"mlx5_8": ETHERNET}, {}),
        ("fail ...: the devices have Ethernet ports only", dict.fromkeys(PORTS, ETHERNET), {}),
        ("not checked: mlx5_6/1: ...", {"mlx5_6": {"state": "ACTIVE"}}, {}),
    ],
)
def test_ports_are_up_and_as_fast_as_others(
    machine: Machine, expected: str, ports: Ports, limits: dict[str, float]
) -> None:
    for name, files in ports.items():
        machine.port(name, **files)
    assert words(machine.look(**limits)) == Like(expected)


def test_a_link_that_goes_down_often_is_a_fault_until_it_is_quiet(machine: Machine) -> None:
    three = "mlx5_2: the link went down 3 times in the last hour"
    for later, downs, expected in [
        (0, 7, "ok"),
        (30, 7, "ok"),
        (30, 8, "warn ..."),
        (30, 9, "warn ..."),
        (30, 10, f"fail [hardware]: {three}"),
        (599, 10, f"fail [hardware]: {three}"),
        (1, 10, f"warn [hardware]: {three}"),  # quiet since: a drain for it is lifted
        (30, 11, "fail ..."),
        (3600, 11, "warn [hardware]: mlx5_2: the link went down 1 times in the last hour"),
        (1, 11, "ok"),
        (30, 1, "ok"),  # the driver has started anew
        (30, 2, "warn ..."),
    ]:
        machine.at += later
        machine.count("mlx5_2", downs)
        assert words(machine.look()) == Like(expected), (later, downs)


def test_a_node_that_should_have_infiniband_and_has_none_is_at_fault(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [])
    assert words(machine.look()) == Like("fail ...: no InfiniBand: its drivers are not loaded")
    (tmp_path / "sys/class/infiniband").mkdir()
    assert words(machine.look()) == "fail [hardware]: no InfiniBand: no device"
