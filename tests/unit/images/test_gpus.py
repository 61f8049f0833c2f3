"""GPUs: the driver in the jail, what Slurm has to be told of them, and which jobs have which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from images.common.gpu_jobs import GpuJobs
from images.common.gpu_view import find_driver
from images.worker.confine import Topology
from images.worker.gres import Device, find_devices, own_lines
from tests.fakes import node_conf
from tests.fakes.commands import FakeRunner
from tests.stacks import ROOT


def test_a_driver_that_is_mounted_as_one_directory_is_found(tmp_path: Path) -> None:
    for name in ("lib64/libcuda.so.570.1", "lib64/libnvidia-ml.so.570.1", "bin/nvidia-smi"):
        (tmp_path / "usr/local/nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/local/nvidia" / name).touch()

    driver = find_driver(["/", "/usr/local/nvidia"], tmp_path)

    assert set(driver.libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}
    assert set(driver.programs) == {"nvidia-smi"}


TWO_SOCKETS = Topology(sockets=2, cores=2, threads=2, order=(0, 4, 2, 6, 1, 5, 3, 7))
"""CPUs 0, 2, 4 and 6 are in the first socket, the others in the second."""
REGISTERED = "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2"
"""A node that is described with them."""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def mixed(root: Path, *models: str) -> Path:
    """A machine with these GPUs, all near all CPUs."""
    for minor, model in enumerate(models):
        bus = f"0000:0{minor}:00.0"
        text = f"Model: \t\t {model}\nDevice Minor: \t {minor}\n"
        write(root / f"proc/driver/nvidia/gpus/{bus}/information", text)
        write(root / f"sys/bus/pci/drivers/nvidia/{bus}/local_cpulist", "0-7\n")
        write(root / f"dev/nvidia{minor}", "")
    return root


def types_of(root: Path, gres: str, log: Callable[[str], None] = print) -> dict[str, str]:
    """Type -> numbers of its GPUs, in the order of the lines."""
    found: dict[str, str] = {}
    for device in find_devices(
        node_conf.conf(f"CPUs=8 Gres={gres}"), "nvidia", runner=FakeRunner(), log=log, root=root
    ):
        found[device.kind] = found.get(device.kind, "") + device.files[0][-1]
    return found


def test_each_gpu_has_the_longest_type_that_is_in_its_name_in_the_order_of_the_stack_file(tmp_path: Path) -> None:
    root = mixed(tmp_path, "NVIDIA GeForce GTX 1060 6GB", "Tesla K20m1", "Tesla K20m", "NVIDIA GeForce GTX 1060 6GB")
    assert [*types_of(root, "gpu:K20m:1,gpu:gtx_1060:2,gpu:k20m1:1").items()] == [
        ("K20m", "2"), ("gtx_1060", "03"), ("k20m1", "1"),
    ]  # fmt: skip


def test_a_gpu_of_another_name_or_beyond_their_number_is_left_out_and_told(tmp_path: Path) -> None:
    root = mixed(tmp_path, "Tesla T4", "NVIDIA A100-SXM4-80GB", "Tesla T4")
    said: list[str] = []
    assert types_of(root, "gpu:T4:1,gpu:V100:2", said.append) == {"T4": "0"}
    assert [line.partition(",")[0] for line in said] == [
        "/dev/nvidia1 is called 'NVIDIA A100-SXM4-80GB'",
        "/dev/nvidia2 is called 'Tesla T4'",
    ]


def test_gpus_without_a_name_take_what_is_left_in_the_order_of_the_stack_file(tmp_path: Path) -> None:
    root = mixed(tmp_path, "", "Tesla T4", "", "")
    assert types_of(root, "gpu:t4:1,gpu:x:1,gpu:y:2") == {"t4": "1", "x": "0", "y": "23"}


def names(root: Path, conf: str) -> list[str]:
    devices = find_devices(node_conf.conf(conf), "nvidia", runner=FakeRunner(), log=print, root=root)
    return [device.shown for device in devices]


def test_exporters_know_gpus_by_their_place_on_the_bus_where_all_are_there(tmp_path: Path) -> None:
    for place, minor in enumerate((3, 2, 0, 1)):
        text = f"Device Minor: \t {minor}\n"
        write(tmp_path / f"proc/driver/nvidia/gpus/0000:{place:02x}:00.0/information", text)
        write(tmp_path / f"dev/nvidia{minor}", "")
    assert names(tmp_path, "CPUs=4 Gres=gpu:4") == ["2", "3", "1", "0"], "Slurm counts by their files"
    (tmp_path / "dev/nvidia0").unlink()
    assert names(tmp_path, "CPUs=4 Gres=gpu:3") == ["1", "2", "3"], "the others are another pod's"


def test_no_line_is_longer_than_the_cluster_s_file() -> None:
    """Slurm takes that file's length for the longest line (images/common/native/guarded.c)."""
    cluster = len((ROOT / "slurm_templates/gres.conf.j2").read_text(encoding="utf-8"))
    files = ("/dev/nvidia15", *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in (9201, 9202)))
    part = Device(files=files, cpus=frozenset({0, 4, 2, 6}), kind="1g.10gb.me")
    conf = node_conf.conf(f"{REGISTERED} Gres=gpu:1g.10gb.me:1")
    assert max(map(len, own_lines(conf, "nvidia", TWO_SOCKETS, [part]))) < cluster


def test_a_start_forgets_the_jobs_of_before_and_leaves_other_pods_their_gpus(tmp_path: Path) -> None:
    jobs = GpuJobs(shown=tmp_path / "shown", own=tmp_path / "own")
    jobs.start(["4", "5.7"])
    jobs.begin("17", (0, 1))
    (jobs.shown / "dcgm/0").write_text("16\n")
    jobs.start(["4", "5.7"])
    jobs.begin("18", (0,))
    assert {path.name: path.read_text() for path in jobs.shown.glob("dcgm/*")} == {"0": "16\n", "4": "18\n"}
