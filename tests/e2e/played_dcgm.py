"""NVIDIA's DCGM exporter, played: this machine has no GPU. Its page has the form of the exporter's source (4.5.3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e.harness import SlurmOnKubernetes

_PORT: Final = 9400

SCRAPE_JOB: Final[dict[str, Any]] = {
    "job_name": "nvidia-dcgm-exporter",
    "static_configs": [{"targets": [f"localhost:{_PORT}"]}],
}
"""As the exporter's own ServiceMonitor has it read: labels that the target has are renamed (honor_labels: false)."""

_TEXTS: Final = {0: "No Error", 79: "GPU has fallen off the bus"}
"""What the exporter writes of an XID into a label."""

_SERVE: Final = f"""
import subprocess, sys, tempfile
directory = tempfile.mkdtemp(dir="/data")  # the one place that can be written to
open(directory + "/metrics", "w").write(sys.argv[1])
command = [sys.executable, "-m", "http.server", "{_PORT}", "--bind=127.0.0.1", "--directory", directory]
quiet = subprocess.DEVNULL
print(subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True).pid, directory)
"""
_WRITE: Final = """
import os, sys
os.chdir(sys.argv[1])
open("new", "w").write(sys.argv[2])
os.replace("new", "metrics")
"""
_END: Final = "import os, shutil, signal, sys; os.kill(int(sys.argv[1]), signal.SIGKILL); shutil.rmtree(sys.argv[2])"


@dataclass(frozen=True, kw_only=True)
class Dcgm:
    """An exporter of two GPUs in Prometheus' own pod, as one that runs elsewhere might not be reached there."""

    slurm: SlurmOnKubernetes
    directory: str

    @contextmanager
    def with_errors(self) -> Iterator[None]:
        """The first GPU falls off the bus, and the second one has an error of memory that cannot be corrected.

        At the end both are as new, as after a reset: a change of the first one, too, which is told a while longer.
        """
        _in_pod(self.slurm, _WRITE, self.directory, page(79, 1))
        try:
            yield
        finally:
            _in_pod(self.slurm, _WRITE, self.directory, page(0, 0))


@contextmanager
def dcgm(slurm: SlurmOnKubernetes) -> Iterator[Dcgm]:
    """Where all is well with the GPUs."""
    pid, directory = _in_pod(slurm, _SERVE, page(0, 0)).split()
    try:
        yield Dcgm(slurm=slurm, directory=directory)
    finally:
        _in_pod(slurm, _END, pid, directory, check=False)


def page(xid: int, double_bit_errors: int) -> str:
    """Of two GPUs: the last error of the first one, and how many the memory of the second one has had."""
    return f"""\
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{_labels(0, xid)} {xid}
DCGM_FI_DEV_XID_ERRORS{_labels(1, 0)} 0
# HELP DCGM_FI_DEV_ECC_DBE_VOL_TOTAL Total number of double-bit volatile ECC errors.
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{_labels(0)} 0
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{_labels(1)} {double_bit_errors}
"""


def _labels(gpu: int, xid: int | None = None) -> str:
    found = {
        "gpu": str(gpu),
        "UUID": f"GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e5{gpu}",
        "pci_bus_id": f"00000000:{gpu + 1}B:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "machine-0",
        "DCGM_FI_DRIVER_VERSION": "570.124.06",
        "container": "slurmd",
        **({} if xid is None else {"err_code": str(xid), "err_msg": _TEXTS[xid]}),
        "namespace": "slurm",
        "pod": "gpu-0",
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in found.items()) + "}"


def _in_pod(slurm: SlurmOnKubernetes, program: str, *arguments: str, check: bool = True) -> str:
    return slurm.exec("prometheus-0", "python3", "-c", program, *arguments, container="prometheus", check=check)
