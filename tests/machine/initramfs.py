"""The guest's first file system: what it runs itself, and two small scripts that make a machine of it."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.machine.programs import Programs

INIT = r"""#!/bin/busybox sh
# Runs in the kernel's own first file system, which runc cannot leave by pivot_root: moves on to one that it can.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in $(cat /modules/order); do insmod /modules/$module.ko || echo "module $module failed"; done
mount -t tmpfs -o mode=755,size=64m node /node
for directory in bin lib lib64 etc sbin; do cp -a /$directory /node/; done
mkdir -p /node/dev /node/proc /node/sys /node/run /node/tmp /node/images /node/root /node/var
for directory in dev proc sys; do mount --move /$directory /node/$directory; done
exec switch_root /node /sbin/start
"""

START = r"""#!/bin/busybox sh
# A node as systemd sets it up, as far as containers see it.
export PATH=/bin:/sbin
umask 022
ln -s /proc/self/fd /dev/fd; ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs -o mode=755,size=75% tmpfs /run
mount -t tmpfs -o mode=1777,size=75% tmpfs /tmp
mount --make-rshared /
mount -t cgroup2 -o nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/system.slice/agent
echo $$ > /sys/fs/cgroup/system.slice/agent/cgroup.procs
for controller in cpuset cpu io memory hugetlb pids; do
  for parent in /sys/fs/cgroup /sys/fs/cgroup/system.slice; do
    echo +$controller > $parent/cgroup.subtree_control || echo "no controller $controller in $parent"
  done
done
sysctl -q -w kernel.panic=-1 kernel.hung_task_timeout_secs=0 kernel.pid_max=4194304 net.ipv4.ip_forward=1 \
  vm.overcommit_memory=1 kernel.keys.root_maxkeys=1000000
ulimit -n 1048576
hostname node
/bin/ip link set lo up
for device in /sys/block/vd*; do
  name=$(cat $device/serial)
  [ $name != scratch ] || { mount -t ext4 /dev/${device##*/} /var; continue; }
  mkdir -p /images/$name
  mount -t ext4 -o ro,noload /dev/${device##*/} /images/$name || echo "disk $name failed"
done
# The agent is a program in Python, which only the images have. It keeps a way out of the image's root: descriptor 9.
for word in $(cat /proc/cmdline); do case $word in agent=*) image=/images/${word#agent=};; esac; done
for directory in dev proc sys; do mount --rbind /$directory $image/$directory; done
exec 8< /etc/agent.py 9< /
exec chroot $image /usr/bin/tini -s -- /usr/bin/python3 -I /proc/self/fd/8
"""
"""What containerd and kubelet expect of a node's sysctls is set as kubelet does: overcommit, keys, panic."""

_ETC = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\ntty:x:5:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}


def initramfs(programs: Programs) -> bytes:
    """What to boot with, as the kernel wants it: an archive of cpio's `newc` format."""
    modules = programs.modules()
    contents = {
        "init": INIT.encode(),
        "sbin/start": START.encode(),
        "etc/agent.py": Path(__file__).with_name("agent.py").read_bytes(),
        "modules/order": "\n".join(name for name, _ in modules).encode(),
        **{name: text.encode() for name, text in _ETC.items()},
        **{f"modules/{name}.ko": content for name, content in modules},
        **{name: path.read_bytes() for name, path in programs.in_guest().items()},
    }
    needed = {str(parent) for name in contents for parent in Path(name).parents} - {"."}
    empty = {"dev", "proc", "sys", "node"}
    parts = [_entry(name, stat.S_IFDIR | 0o755, b"") for name in sorted(needed | empty)]
    parts += [_entry(name, stat.S_IFREG | 0o755, content) for name, content in contents.items()]
    return b"".join([*parts, _entry("TRAILER!!!", 0, b"")])


def _entry(name: str, mode: int, content: bytes) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(f"{field:08X}".encode() for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
