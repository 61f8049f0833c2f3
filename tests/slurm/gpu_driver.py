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


def bring_narrow_driver(pod: Pod) -> None:
    """The same, with GPUs that are near one core each, as where a socket has several NUMA nodes."""
    bring_driver(pod)
    for minor in (0, 1):
        _run(pod, f"echo {minor} > /sys/bus/pci/drivers/nvidia/0000:0{minor}:00.0/local_cpulist")


def bring_mixed_driver(pod: Pod) -> None:
    """The same, with GPUs of two kinds."""
    bring_driver(pod)
    for minor, model in enumerate(("GTX 1060 6GB", "GTX 970")):
        _run(pod, f"sed -i 's/H100 .*/GeForce {model}/' /proc/driver/nvidia/gpus/0000:0{minor}:00.0/information")


PARTS = r"""
mkdir -p /dev/nvidia-caps
mount -t tmpfs tmpfs /dev/nvidia-caps
mkdir /proc/driver/nvidia-caps
for n in 1 2 3; do
    printf 'gpu0/gi%s/access %s\ngpu0/gi%s/ci0/access %s\n' $n $((n * 2)) $n $((n * 2 + 1))
    for cap in $((n * 2)) $((n * 2 + 1)); do
        touch /dev/nvidia-caps/nvidia-cap$cap
        mount --bind /dev/null /dev/nvidia-caps/nvidia-cap$cap
    done
done > /proc/driver/nvidia-caps/mig-minors
cat > /run/nvidia-smi <<'END'
#!/bin/bash
if [ "$1" = -L ]; then
    echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)'
    printf '  MIG %s     Device  %s: (UUID: MIG-%s)\n' 3g.40gb 0 0 1g.10gb 1 1 1g.10gb 2 2
else
    echo '<nvidia_smi_log><gpu><mig_devices>'
    for n in 0 1 2; do
        echo "<mig_device><index>$n</index><gpu_instance_id>$((n + 1))</gpu_instance_id>"
        echo '<compute_instance_id>0</compute_instance_id></mig_device>'
    done
    echo '</mig_devices><uuid>GPU-a</uuid><minor_number>0</minor_number></gpu></nvidia_smi_log>'
fi
END
"""
"""A GPU that is divided into three parts, and what tells of them."""


def bring_parts(pod: Pod) -> None:
    bring_driver(pod)
    _run(pod, PARTS)


AMD = r"""
mkdir -p /run/amd /dev/dri
for number in 128 129; do
    device=/run/amd/renderD$number/device
    mkdir -p $device/drm/card$((number - 127))
    echo 0x1002 > $device/vendor
    echo 0-1 > $device/local_cpulist
    for file in card$((number - 127)) renderD$number; do
        touch /dev/dri/$file
        mount --bind /dev/null /dev/dri/$file
    done
done
# A machine without graphics has no such class, and nothing can be added to /sys.
for class in /sys/class/*; do
    mkdir -p /run/class/${class##*/}
    mount --bind $class /run/class/${class##*/}
done
mkdir -p /run/class/drm
mount --bind /run/amd /run/class/drm
mount --rbind /run/class /sys/class
"""
"""Two GPUs of AMD, and what the kernel tells of them."""


def bring_amd(pod: Pod) -> None:
    _run(pod, AMD)


def _run(pod: Pod, script: str) -> None:
    done = pod.run(f"set -e\n{script}")
    assert done.returncode == 0, done.stdout + done.stderr
