"""A driver for GPUs that are only played."""

from __future__ import annotations

from tests.slurm.pod import Pod

DRIVER = r"""
set -e
mount -t tmpfs tmpfs /proc/driver
mount -t tmpfs tmpfs /sys/bus/pci/drivers
for minor in 0 1; do
    gpu=0000:0$minor:00.0
    mkdir -p /proc/driver/nvidia/gpus/$gpu /sys/bus/pci/drivers/nvidia/$gpu
    printf 'Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-%s\nBus Location: \t %s\nDevice Minor: \t %s\n' \
        $minor $gpu $minor > /proc/driver/nvidia/gpus/$gpu/information
    echo 0-1 > /sys/bus/pci/drivers/nvidia/$gpu/local_cpulist
    touch /dev/nvidia$minor
    mount --bind /dev/null /dev/nvidia$minor
done
python3 - <<'END'
from pathlib import Path
library = Path("/usr/lib/x86_64-linux-gnu/libBrokenLocale.so.1").read_bytes()
name, wanted = b"libBrokenLocale.so.1\0", b"libcuda.so.1\0"
assert name in library
Path("/run/libcuda").write_bytes(library.replace(name, wanted.ljust(len(name), b"\0")))
END
printf '#!/bin/sh\necho this is the GPU program of the pod\n' > /run/nvidia-smi
chmod 755 /run/nvidia-smi
touch /usr/lib/x86_64-linux-gnu/libcuda.so.570.1 /usr/bin/nvidia-smi
mount --bind /run/libcuda /usr/lib/x86_64-linux-gnu/libcuda.so.570.1
mount --bind /run/nvidia-smi /usr/bin/nvidia-smi
"""
"""What NVIDIA's container runtime and kernel driver leave in a pod with two GPUs."""


def bring_driver(pod: Pod) -> None:
    done = pod.run(DRIVER)
    assert done.returncode == 0, done.stdout + done.stderr
