"""What of a pod its users see in the jail, and who may write it: one walk, for sandboxes and for real pods.

Handed over is what an entry point binds into the jail: no directory among it may be written by others without the
sticky bit, and no file or socket of ours at all.
"""

from __future__ import annotations

import json
import re
from typing import Final

SCRIPT: Final = r"""
import json, os, re, stat, sys
jail = sys.argv[1].rstrip("/")
KERNEL = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "tracefs", "securityfs"}
FIRST_USER = 1000
found, walked = [], []

def look(path):
    status = os.lstat(path)
    mode, shown = status.st_mode, path[len(jail):] or "/"
    theirs = FIRST_USER <= status.st_uid < 60000
    bad = mode & stat.S_IWOTH and not theirs
    if stat.S_ISDIR(mode):
        bad = bad and not mode & stat.S_ISVTX
    elif stat.S_ISLNK(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        bad = False
    if bad and not os.statvfs(path).f_flag & os.ST_RDONLY:  # a ConfigMap's volume is 0777, and mounted read-only
        found.append([shown, oct(stat.S_IMODE(mode)), status.st_uid])
    return stat.S_ISDIR(mode) and not theirs and status.st_dev

with open("/proc/self/mountinfo") as mounts:
    lines = [line.split(" - ") for line in mounts]
def plain(point):
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point)

points = {plain(left.split()[4]): right.split()[0] for left, right in lines}
for point, kind in sorted(points.items()):
    if kind in KERNEL or not (point.startswith(jail + "/") if jail else True):
        continue
    walked.append(point[len(jail):])
    stack = [(point, os.lstat(point).st_dev)]
    while stack:
        path, device = stack.pop()
        try:
            inside = look(path)
            if inside == device:
                stack.extend((os.path.join(path, name), device) for name in os.listdir(path))
        except FileNotFoundError:
            pass
print(json.dumps({"walked": walked, "found": found}))
"""
"""Run it with Python as root in the pod, outside the jail; its argument is the jail, or `/` where there is none."""

ALLOWED: Final = {
    r"/run/munge/munge\.socket\.2": "everybody may ask munged, which sees from the socket who does",
    r"/dev/log": "what users write there is dropped, as the helper sees from the socket who does",
    r"/var/lib/sss/pipes/(nss|pam|ssh)": "everybody may ask SSSD",
    r"/var/spool/slurmd/[a-z0-9-]+_\d+\.\d+": "slurmstepd sees from the socket who asks, as on every Slurm cluster",
}
"""Sockets that are meant for everybody."""


def left_open(printed: str) -> list[str]:
    """What others may write and should not. `printed` is what the walk printed."""
    return [
        f"{path} ({mode} of {uid})"
        for path, mode, uid in json.loads(printed)["found"]
        if not any(re.fullmatch(pattern, path) for pattern in ALLOWED)
    ]


def walked(printed: str) -> set[str]:
    """Which mounts were looked at, as users see them."""
    return set(json.loads(printed)["walked"])
