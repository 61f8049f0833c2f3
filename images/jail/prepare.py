"""Build step of the jail image: what turns a Debian with compilers into the root file system that users log in to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

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
# OpenMPI: containers have no permission to attach to each other's memory, and ssh between nodes is not how jobs start.
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
# nvidia-smi and its like on nodes with GPUs; the jail plugin sets the same for programs that no shell has started.
if [ -d /run/slurmstack/gpu/bin ]; then PATH="$PATH:/run/slurmstack/gpu/bin"; fi
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
    for name in ("etc/ssh/authorized_keys.d", "etc/sudoers.d", "etc/profile.d"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/profile.d/slurmstack.sh").write_text(PROFILE, encoding="utf-8")
    seff = root / "usr/local/bin/seff"
    seff.parent.mkdir(parents=True, exist_ok=True)
    seff.unlink(missing_ok=True)
    seff.symlink_to("/usr/libexec/slurmstack/seff")
    (root / "etc/motd").write_text(MOTD, encoding="utf-8")
    (root / "etc/default/locale").write_text("LANG=C.UTF-8\n", encoding="utf-8")


def main() -> int:
    """Entry point."""
    prepare(Path("/"))
    subprocess.run(["update-alternatives", "--quiet", "--set", "editor", "/bin/nano"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
