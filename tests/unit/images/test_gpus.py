"""GPUs: the driver in the jail, what Slurm has to be told of them, and which jobs have which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from images.common.command import Result
from images.common.gpu_jobs import GpuJobs
from images.common.gpu_view import find_driver
from images.worker.confine import Topology
from images.worker.gres import Device, find_devices, own_lines
from tests.fakes import node_conf
from tests.fakes.commands import FakeRunner
from tests.stacks import ROOT

LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A root file system as NVIDIA's runtime leaves it; every file is a mount of its own."""
    root = tmp_path / "pod"
    for name in (
        f"{LIBRARIES}/libcuda.so.570.1", f"{LIBRARIES}/libnvidia-ml.so.570.1", "usr/bin/nvidia-smi",
        "usr/lib/firmware/nvidia/570.1/gsp_ga10x.bin", "run/nvidia-persistenced/socket", "etc/hosts",
        "usr/lib/i386-linux-gnu/libcuda.so.570.1", "jail/run/slurmstack/gpu/lib/libcuda.so.1", "usr/share/nvidia/x.bin",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / LIBRARIES / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    (root / LIBRARIES / "libcuda.so").symlink_to("libcuda.so.1")
    (root / LIBRARIES / "libz.so.1").symlink_to("libz.so.1.3")
    (root / LIBRARIES / "libz.so.1.3").write_text("of the image")
    return root


def points(root: Path) -> list[str]:
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return ["/", "/proc", *(f"/{path.relative_to(root)}" for path in files if path.name != "libz.so.1.3")]


def test_what_the_runtime_has_mounted_is_found_and_nothing_of_the_image(pod: Path) -> None:
    driver = find_driver(points(pod), pod)

    assert set(driver.libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}
    assert driver.libraries["libcuda.so.570.1"] == pod / LIBRARIES / "libcuda.so.570.1"
    assert driver.links == {"libcuda.so.1": "libcuda.so.570.1", "libcuda.so": "libcuda.so.570.1"}
    assert set(driver.programs) == {"nvidia-smi"}
    assert driver.sockets == ["/run/nvidia-persistenced"]


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

LISTED = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)
  MIG 3g.40gb     Device  0: (UUID: MIG-a0)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-a1)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)
  MIG 1g.10gb     Device  0: (UUID: MIG-b0)
"""
"""What `nvidia-smi -L` prints of two divided GPUs, and below what `nvidia-smi -q -x` does, as far as it is read."""


GPU = "<gpu><mig_devices>{parts}</mig_devices><uuid>{uuid}</uuid><minor_number>{minor}</minor_number></gpu>"
PART = (
    "<mig_device><index>{}</index><gpu_instance_id>{}</gpu_instance_id><compute_instance_id>0</compute_instance_id>"
    "</mig_device>"
)
DESCRIBED = (
    '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
    + GPU.format(uuid="GPU-aa", minor=0, parts=PART.format(0, 1) + PART.format(1, 9))
    + GPU.format(uuid="GPU-bb", minor=1, parts=PART.format(0, 7))
    + "</nvidia_smi_log>\n"
)
MINORS = """\
config 1
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi9/access 84
gpu0/gi9/ci0/access 85
gpu1/gi7/access 201
gpu1/gi7/ci0/access 202
"""


def nvidia(root: Path, *near: str) -> Path:
    """A machine with a GPU for each list of CPUs."""
    for minor, cpus in enumerate(near):
        bus = f"0000:0{minor}:00.0"
        write(
            root / f"proc/driver/nvidia/gpus/{bus}/information", f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n"
        )
        write(root / f"sys/bus/pci/drivers/nvidia/{bus}/local_cpulist", f"{cpus}\n")
        write(root / f"dev/nvidia{minor}", "")
    return root


def divided(root: Path) -> Path:
    """The same with two GPUs, one near each socket, of which the pod has three parts."""
    nvidia(root, "0,2,4,6", "1,3,5,7")
    write(root / "proc/driver/nvidia-caps/mig-minors", MINORS)
    for cap in (12, 13, 84, 85, 201, 202):
        write(root / f"dev/nvidia-caps/nvidia-cap{cap}", "")
    return root


SMI = FakeRunner({"nvidia-smi -L": Result(code=0, stdout=LISTED), "nvidia-smi -q": Result(code=0, stdout=DESCRIBED)})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def lines(root: Path, gres: str) -> list[str]:
    conf = node_conf.conf(f"{REGISTERED} Gres={gres}")
    return own_lines(conf, "nvidia", TWO_SOCKETS, find_devices(conf, "nvidia", runner=SMI, log=print, root=root))


def test_without_one_socket_all_gpus_are_near_everything(tmp_path: Path) -> None:
    """For some of them only it would be an error."""
    assert lines(nvidia(tmp_path, "0,2,4,6", "0,1"), "gpu:h100:2") == [
        "AutoDetect=off",
        "Name=gpu Type=h100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
        "Name=gpu Type=h100 File=/dev/nvidia1 Flags=nvidia_gpu_env",
    ]


def mixed(root: Path, *models: str) -> Path:
    """A machine with these GPUs, all near all CPUs."""
    nvidia(root, *["0-7"] * len(models))
    for minor, model in enumerate(models):
        path = root / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"
        path.write_text(f"Model: \t\t {model}\nDevice Minor: \t {minor}\n")
    return root


def types_of(root: Path, gres: str, log: Callable[[str], None] = print) -> dict[str, str]:
    """Type -> numbers of its GPUs, in the order of the lines."""
    found: dict[str, str] = {}
    for device in find_devices(node_conf.conf(f"CPUs=8 Gres={gres}"), "nvidia", runner=SMI, log=log, root=root):
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


def test_parts_of_gpus_have_all_the_files_that_they_need_and_the_sockets_of_their_gpu(tmp_path: Path) -> None:
    cap = "/dev/nvidia-caps/nvidia-cap"
    assert lines(divided(tmp_path), "gpu:1g.10gb:1,gpu:1g.10gb.me:1,gpu:3g.40gb:1") == [
        "AutoDetect=off",
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia1,{cap}201,{cap}202 Cores=2-3 Flags=nvidia_gpu_env",
        f"Name=gpu Type=1g.10gb.me MultipleFiles=/dev/nvidia0,{cap}84,{cap}85 Cores=0-1 Flags=nvidia_gpu_env",
        f"Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0,{cap}12,{cap}13 Cores=0-1 Flags=nvidia_gpu_env",
    ]


def names(root: Path, conf: str) -> list[str]:
    devices = find_devices(node_conf.conf(conf), "nvidia", runner=SMI, log=print, root=root)
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
