"""InfiniBand ports, as the kernel shows them below /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.health.checks import infiniband
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner

DEFAULTS = Thresholds()


class Machine:
    """Writes what the kernel would show of eight ports at 400 Gbit/s."""

    def __init__(self, root: Path, ports: int = 8) -> None:
        self.root = root
        self.node = Node(name="gpu-0", gpus=8, infiniband=True, root=root, state=root / "state")
        (root / "sys/class").mkdir(parents=True)
        for index in range(ports):
            self.port(f"mlx5_{index}")

    def port(self, device: str, **files: str) -> None:
        """A port as it should be, but for `files`."""
        path = self.root / "sys/class/infiniband" / device
        (path / "ports/1/counters").mkdir(parents=True, exist_ok=True)
        (path / "board_id").write_text("MT_0000000838\n")
        (path / "hca_type").write_text("MT4129\n")
        texts = {
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            **{f"counters/{name}": "0" for name in infiniband.COUNTERS},
            **{name.replace("__", "/"): text for name, text in files.items()},
        }
        for name, text in texts.items():
            (path / "ports/1" / name).write_text(f"{text}\n")

    def look(self, thresholds: Thresholds = DEFAULTS) -> Result:
        """What the check finds. It starts no program, so none can hang."""
        runner = FakeRunner()
        result = infiniband.run(self.node, runner, thresholds)
        assert runner.commands == []
        return result


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Eight ports that are well."""
    return Machine(tmp_path)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that what is remembered is stamped with."""
    time = [1_800_000_000.0]
    monkeypatch.setattr("time.time", lambda: time[0])
    return time


def test_active_ports_at_full_rate_are_well(machine: Machine) -> None:
    result = machine.look()

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values["infiniband_ports_active"] == 8
    assert result.values['infiniband_errors{port="mlx5_3",kind="symbol_error"}'] == 0


def test_a_port_that_is_down_is_a_fault_of_the_hardware(machine: Machine) -> None:
    machine.port("mlx5_3", state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    machine.port("mlx5_4", state="1: DOWN", phys_state="3: Disabled", rate="10 Gb/sec (4X SDR)")

    result = machine.look()

    assert (result.status, result.fault) == (Status.FAIL, "hardware")
    assert result.message == "mlx5_3: DOWN, Polling; mlx5_4: DOWN, Disabled"


def test_a_port_without_a_subnet_manager_is_a_fault_of_its_surroundings(machine: Machine) -> None:
    for index in range(8):
        machine.port(f"mlx5_{index}", state="2: INIT")

    result = machine.look()

    assert (result.status, result.fault) == (Status.FAIL, "node")
    assert result.message.endswith("mlx5_7: INIT, LinkUp")


def test_a_site_may_say_how_many_ports_are_connected(machine: Machine) -> None:
    machine.port("mlx5_8", state="1: DOWN", phys_state="3: Disabled")
    eight = Thresholds({"infiniband": {"ports": 8}})

    assert machine.look(eight).status is Status.OK
    machine.port("mlx5_0", state="1: DOWN", phys_state="2: Polling")
    result = machine.look(eight)
    assert (result.status, result.fault) == (Status.FAIL, "hardware")
    assert result.message.startswith("7 of 8 ports are active; mlx5_0: DOWN, Polling")
    assert machine.look(Thresholds({"infiniband": {"ports": 10}})).status is Status.FAIL


def test_a_port_slower_than_others_of_its_kind_is_a_fault(machine: Machine) -> None:
    machine.port("mlx5_5", rate="200 Gb/sec (2X NDR)")

    result = machine.look()

    assert (result.status, result.fault, result.message) == (Status.FAIL, "hardware", "mlx5_5: 200 of 400 Gbit/s")


def test_cards_of_another_kind_may_be_slower(machine: Machine) -> None:
    machine.port("mlx5_8", rate="200 Gb/sec (4X HDR)")
    (machine.root / "sys/class/infiniband/mlx5_8/board_id").write_text("MT_0000000223\n")

    assert machine.look().status is Status.OK


def test_the_rate_can_be_set(machine: Machine) -> None:
    result = machine.look(Thresholds({"infiniband": {"gigabits": 800}}))

    assert result.status is Status.FAIL
    assert result.message.startswith("mlx5_0: 400 of 800 Gbit/s; ")


def test_new_errors_are_a_warning_for_an_hour_and_old_ones_are_none(machine: Machine, now: list[float]) -> None:
    machine.port("mlx5_2", counters__symbol_error="5000")
    assert machine.look().status is Status.OK

    now[0] += 30
    machine.port("mlx5_2", counters__symbol_error="5011", counters__port_rcv_errors="10")
    result = machine.look()

    assert (result.status, result.fault) == (Status.WARN, "hardware")
    assert result.message == "mlx5_2: 11 symbol_error in the last hour"
    for _ in range(8):
        now[0] += 500
        assert machine.look().status is (Status.WARN if now[0] <= 1_800_003_600 else Status.OK)


def test_late_errors_are_told_when_the_first_figures_are_too_old(machine: Machine, now: list[float]) -> None:
    machine.look()
    now[0] += 3000
    machine.look()
    machine.port("mlx5_2", counters__symbol_error="11")
    now[0] += 30
    assert machine.look().status is Status.WARN
    now[0] += 900

    assert machine.look().message == "mlx5_2: 11 symbol_error in the last hour"


def test_a_link_that_goes_down_is_a_warning_and_often_a_fault(machine: Machine, now: list[float]) -> None:
    machine.port("mlx5_1", counters__link_downed="7")
    machine.look()

    found = []
    for downs in (7, 8, 9, 10):
        now[0] += 30
        machine.port("mlx5_1", counters__link_downed=str(downs))
        found.append(machine.look())

    assert [result.status for result in found] == [Status.OK, Status.WARN, Status.WARN, Status.FAIL]
    assert found[3].message == "mlx5_1: the link went down 3 times in the last hour"
    assert found[3].fault == "hardware"


def test_counters_that_were_set_back_count_anew(machine: Machine, now: list[float]) -> None:
    machine.port("mlx5_1", counters__symbol_error="5000", counters__link_downed="9")
    machine.look()
    now[0] += 30
    machine.port("mlx5_1", counters__symbol_error="20")
    assert machine.look().status is Status.OK
    now[0] += 30
    machine.port("mlx5_1", counters__symbol_error="31")
    assert machine.look().message == "mlx5_1: 11 symbol_error in the last hour"


def test_a_port_that_offers_no_counters_is_judged_by_the_rest(machine: Machine) -> None:
    for path in (machine.root / "sys/class/infiniband/mlx5_0/ports/1/counters").iterdir():
        path.unlink()

    assert machine.look().status is Status.OK
    machine.port("mlx5_0", state="1: DOWN")
    assert machine.look().status is Status.FAIL


def test_a_node_that_should_have_infiniband_and_has_none_is_at_fault(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ports=0)
    result = machine.look()
    assert (result.status, result.message) == (Status.FAIL, "no InfiniBand: its drivers are not loaded")

    (tmp_path / "sys/class/infiniband").mkdir()
    result = machine.look()
    assert (result.status, result.fault, result.message) == (
        Status.FAIL,
        "hardware",
        "no InfiniBand: there is no device",
    )


def test_a_node_that_need_not_have_infiniband_is_not_checked(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ports=0)
    machine.node = Node(name="cpu-0", root=tmp_path, state=tmp_path / "state")

    assert machine.look().status is Status.NOT_CHECKED


def test_a_kernel_that_shows_nothing_is_not_checked(tmp_path: Path) -> None:
    node = Node(name="gpu-0", infiniband=True, root=tmp_path / "nothing", state=tmp_path / "state")

    assert infiniband.run(node, FakeRunner(), DEFAULTS).status is Status.NOT_CHECKED


def test_ethernet_ports_are_no_infiniband(machine: Machine) -> None:
    machine.port("mlx5_8", link_layer="Ethernet", state="1: DOWN", rate="25 Gb/sec (1X EDR)")
    assert machine.look().status is Status.OK

    for index in range(8):
        machine.port(f"mlx5_{index}", link_layer="Ethernet")
    result = machine.look()
    assert (result.status, result.message) == (Status.NOT_CHECKED, "the devices have Ethernet ports only")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("state", "ACTIVE"),
        ("phys_state", ""),
        ("rate", "fast"),
        ("link_layer", "Carrier pigeon"),
        ("counters/symbol_error", "-1"),
        ("counters/link_downed", "\xff"),
    ],
)
def test_a_port_whose_files_make_no_sense_is_not_checked(machine: Machine, name: str, text: str) -> None:
    path = machine.root / "sys/class/infiniband/mlx5_6/ports/1" / name
    path.write_bytes(text.encode("latin-1"))

    result = machine.look()

    assert result.status is Status.NOT_CHECKED
    assert result.message.startswith(f"mlx5_6/1: {path.name} is ")


def test_a_port_whose_files_cannot_be_read_hides_no_fault_of_another(machine: Machine) -> None:
    path = machine.root / "sys/class/infiniband/mlx5_6/ports/1/state"
    path.unlink()
    path.mkdir()  # the firmware of a broken card answers with an error as well
    result = machine.look()
    assert (result.status, result.message) == (Status.NOT_CHECKED, "mlx5_6/1: state: Is a directory")

    machine.port("mlx5_2", state="1: DOWN")
    assert machine.look().status is Status.FAIL
