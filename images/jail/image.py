"""The image's own root file system: in its build, made into one that users log in to; in a pod, copied into a volume.

Copied are owners, modes, times, links and extended attributes. Several tar(1) copy at once, because a shared file
system answers each small file slowly but many at once well. After an interruption all is copied again.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

AT_ONCE: Final = 8
BATCH: Final = 4
"""Names that one tar copies."""

SKIPPED: Final = frozenset({"/proc", "/sys", "/dev", "/jail", "/secrets", "/config"})
"""Of the pod, not of the image. Mount points are skipped besides; each is left as an empty target for a later mount."""

_OPENED: Final = ("", "usr", "usr/lib", "usr/share")
"""Directories whose entries are copied beside each other: these have nearly all files."""

REPORT_SECONDS: Final = 2.0
NO_SPACE: Final = 3


MOUNT_DIRECTORIES: Final = (
    "proc", "sys", "dev", "run/munge", "run/slurm", "run/lock", "var/spool/slurmd", "tmp", "mnt", "media", "srv",
    "jail", "run/slurmstack/gpu",
)  # fmt: skip
"""Targets for what each pod binds into the jail (images/common/jail_view.py), and directories that a mount may use."""

MOUNT_FILES: Final = ("etc/resolv.conf", "etc/hosts", "etc/hostname")

PROFILE: Final = """\
# Tools for administrators, too: sinfo and scontrol are for everybody, ip and ss often are.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LANG="${LANG:-C.UTF-8}"
# OpenMPI: containers have no permission to attach to each other's memory.
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
# nvidia-smi and its like on nodes with GPUs; the jail plugin sets the same for programs that no shell has started.
if [ -d /run/slurmstack/gpu/bin ]; then PATH="$PATH:/run/slurmstack/gpu/bin"; fi
"""

KEY_PROFILE: Final = """\
# For ssh to the nodes of one's jobs: a key of one's own, where there is none. Two logins at once make one.
if [ -e /run/slurm/ssh/ssh_host_ed25519_key.pub ] && [ "$(id -u)" -ge 1000 ] && [ -O "$HOME" ] \\
  && ! ls -d "$HOME"/.ssh/id_* >/dev/null 2>&1; then (
  umask 077; new=".new.$$"
  mkdir -p "$HOME/.ssh" && cd "$HOME/.ssh" \\
    && ssh-keygen -q -t ed25519 -N "" -C "$(id -un)@cluster" -f "$new" \\
    && { echo; cat "$new.pub"; } >>authorized_keys \\
    && { ln "$new" id_ed25519 || { mv -n "$new" id_ed25519; [ ! -e "$new" ]; }; } && mv "$new.pub" id_ed25519.pub
  rm -f "$new" "$new.pub"
) </dev/null >/dev/null 2>&1; fi
"""

SSH: Final = """\
# The key of this cluster's workers, for the names of their nodes.
KnownHostsCommand /usr/libexec/slurmstack/known-host %H
"""

MOTD: Final = """\

  Slurm login node. Your home, and all software, are on a volume that the compute nodes share.

    sinfo                    what is there
    srun -N2 hostname        run something on two nodes
    sbatch script.sh         queue a job; squeue shows it
    seff JOB                 what a job used of what it asked for

"""


def make_mount_targets(root: Path) -> None:
    """Make sure that there is something to bind to. `populate` does it again, as it copies no mounts."""
    for name in MOUNT_DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in MOUNT_FILES:
        (root / name).touch()
    (root / "tmp").chmod(0o1777)


def prepare(root: Path) -> None:
    """Make directories, defaults and permissions below `root`."""
    make_mount_targets(root)
    for name in ("etc/ssh/authorized_keys.d", "etc/ssh/ssh_config.d", "etc/sudoers.d", "etc/profile.d"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/profile.d/slurmstack.sh").write_text(PROFILE, encoding="utf-8")
    (root / "etc/profile.d/slurmstack-key.sh").write_text(KEY_PROFILE, encoding="utf-8")
    # sshd runs it for a command, too, whose shell reads no profile.
    (root / "etc/ssh/sshrc").unlink(missing_ok=True)
    (root / "etc/ssh/sshrc").symlink_to("/etc/profile.d/slurmstack-key.sh")
    (root / "etc/ssh/ssh_config.d/slurmstack.conf").write_text(SSH, encoding="utf-8")
    seff = root / "usr/local/bin/seff"
    seff.parent.mkdir(parents=True, exist_ok=True)
    seff.unlink(missing_ok=True)
    seff.symlink_to("/usr/libexec/slurmstack/seff")
    (root / "etc/motd").write_text(MOTD, encoding="utf-8")
    (root / "etc/default/locale").write_text("LANG=C.UTF-8\n", encoding="utf-8")


def fill(source: Path, target: Path, log: Callable[[str], None], mounted: frozenset[str]) -> int:
    """Copy all of `source`, again what an interrupted run has copied; returns the exit code."""
    skipped = [path[1:] for path in sorted({*SKIPPED, *mounted} - {"/"}) if os.path.lexists(source / path[1:])]
    free = os.statvfs(target)
    log(f"copying the image's root file system; free: {free.f_bavail * free.f_frsize / 1e6:.0f} MB")
    try:
        _copy_all(source, target, skipped, log)
        for path in skipped:
            if (source / path).is_dir():
                (target / path).mkdir(mode=0o755, parents=True, exist_ok=True)
            else:
                (target / path).touch(mode=0o644)
        make_mount_targets(target)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            log(str(error))
            return 1
        log("the volume is full: it needs what the jail's image has, and room for your users; make it larger")
        return NO_SPACE
    return 0


def _copy_all(source: Path, target: Path, skipped: Sequence[str], log: Callable[[str], None]) -> None:
    """Raises OSError at the first thing that fails."""
    opened = [path for path in _OPENED if (source / path).is_dir() and not (source / path).is_symlink()]
    parts: list[list[str]] = []
    for path in opened:
        (target / path).mkdir(mode=0o700, exist_ok=True)
        found = (str(entry.relative_to(source)) for entry in sorted((source / path).iterdir()))
        names = [name for name in found if name not in {*opened, *skipped}]
        parts += [names[at : at + BATCH] for at in range(0, len(names), BATCH)]
    due = time.monotonic() + REPORT_SECONDS
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            for done, _ in enumerate(pool.map(lambda names: _copy(source, target, names, skipped), parts), 1):
                if time.monotonic() >= due:
                    due = time.monotonic() + REPORT_SECONDS
                    log(f"{100 * done // len(parts)}% of the directories are copied")
        except OSError:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for path in reversed(opened[1:]):  # last: writing into a directory changes its time
        status = (source / path).stat()
        os.chown(target / path, status.st_uid, status.st_gid)
        shutil.copystat(source / path, target / path)


def _copy(source: Path, target: Path, names: Sequence[str], skipped: Sequence[str]) -> None:
    attributes = ("--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability", "--file=-")
    pack = ["tar", "--create", *attributes, f"--directory={source}", "--anchored", "--no-wildcards"]
    pack += [*(f"--exclude={path}" for path in skipped), "--", *names]
    unpack = ["tar", "--extract", *attributes, f"--directory={target}", "--preserve-permissions", "--numeric-owner"]
    with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
        done = subprocess.run(
            unpack, stdin=packing.stdout, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    if done.returncode or packing.returncode:
        full = "No space left" in done.stderr or "quota exceeded" in done.stderr
        reason = done.stderr.partition("\n")[0] or f"cannot read all of {', '.join(names)}"
        raise OSError(errno.ENOSPC if full else errno.EIO, reason)


def main() -> int:
    """The build step."""
    prepare(Path("/"))
    subprocess.run(["update-alternatives", "--quiet", "--set", "editor", "/bin/nano"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
