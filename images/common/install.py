"""Build step of the images: makes the programs of some folders executable under /usr/libexec/slurmstack.

Run once, in the Containerfile: `python3 install.py common worker [--users-from-jail]`.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

LIBRARY = Path("/usr/lib/slurmstack")
PROGRAMS = {
    "common": {"munged": "images.common.munged", "sssd": "images.common.sssd"},
    "controller": {
        "slurmctld": "images.controller.slurmctld",
        "config-agent": "images.controller.config_agent",
        "await-config": "images.controller.await_config",
    },
    "worker": {"slurmd": "images.worker.slurmd", "leave": "images.worker.leave"},
    "login": {"sackd": "images.login.sackd", "sshd": "images.login.sshd"},
    "accounting": {
        "slurmdbd": "images.accounting.slurmdbd",
        "check-database": "images.accounting.check_database",
        "policy": "images.accounting.policy",
    },
    "database": {"mariadbd": "images.database.mariadbd"},
    "rest": {"slurmrestd": "images.rest.slurmrestd", "rest-proxy": "images.rest.proxy"},
    "jail": {"populate": "images.jail.populate", "users": "images.jail.users"},
}
"""Folder below images/ -> program -> the module whose main() it runs."""

LAUNCHER = """\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "{library}")
from {module} import main

sys.exit(main())
"""


def install_programs(folder: str, root: Path) -> list[Path]:
    """Write one launcher per program of a folder."""
    directory = root / "usr/libexec/slurmstack"
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for program, module in PROGRAMS[folder].items():
        path = directory / program
        path.write_text(LAUNCHER.format(library=LIBRARY, module=module))
        path.chmod(0o755)
        written.append(path)
    return written


def take_users_from_jail(root: Path) -> None:
    """Let the pod know the jail's users, by way of libnss-extrausers, which reads /var/lib/extrausers.

    slurmd and sshd look users up outside the jail; the files themselves are inside and change at run time.
    """
    extrausers = root / "var/lib/extrausers"
    extrausers.mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "shadow"):
        link = extrausers / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"/jail/etc/{name}")
    switch = root / "etc/nsswitch.conf"
    lines = []
    for line in switch.read_text().splitlines():
        database = line.partition(":")[0]
        replaced = database in {"passwd", "group", "shadow"}
        lines.append(f"{database + ':':<16}files extrausers" if replaced else line)
    switch.write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Entry point."""
    root = Path("/")
    for folder in [argument for argument in arguments if not argument.startswith("--")]:
        install_programs(folder, root)
    if "--users-from-jail" in arguments:
        take_users_from_jail(root)
    (root / "usr/lib/slurmstack/images/__init__.py").touch()
    # Containers run on read-only layers: without this every start would compile the modules again.
    compileall.compile_dir(str(root / "usr/lib/slurmstack/images"), quiet=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
