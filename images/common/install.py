"""Build step of the images: makes the programs of some folders executable under /usr/libexec/slurmstack.

It also says where the pods of a role look users up. Run once, in the Containerfile: `python3 install.py common worker`.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

LIBRARY = Path("/usr/lib/slurmstack")
PROGRAMS = {
    "common": {"munged": "images.common.sidecars:munged", "sssd": "images.common.sidecars:sssd"},
    "controller": {
        "slurmctld": "images.controller.slurmctld",
        "standby": "images.controller.standby",
        "config-agent": "images.controller.config_agent",
        "await-config": "images.controller.await_config",
        "leave": "images.controller.leave",
    },
    "worker": {"slurmd": "images.worker.slurmd", "leave": "images.worker.leave"},
    "login": {
        "sackd": "images.login.sshd:sackd",
        "sshd": "images.login.sshd",
        "worker-sshd": "images.login.worker_ssh",
        "has-job": "images.login.worker_ssh:has_job",
        "make-home": "images.login.make_home",
    },
    "accounting": {
        "slurmdbd": "images.accounting.slurmdbd",
        "check-database": "images.accounting.check_database",
        "policy": "images.accounting.policy",
    },
    "backup": {
        "backup": "images.backup.program",
    },
    "database": {"mariadbd": "images.database.mariadbd"},
    "elastic": {"elastic": "images.elastic.program"},
    "exporter": {"exporter": "images.exporter.program"},
    "rest": {"slurmrestd": "images.rest.slurmrestd", "rest-proxy": "images.rest.proxy"},
    "dashboard": {"dashboard": "images.dashboard.app"},
    "health": {
        "health-periodic": "images.health.periodic",
        "health-gpus": "images.health.gpu_job",
    },
    "health/watch": {"health-watch": "images.health.watch.watcher"},
    "health/node_tests": {"health-tests": "images.health.node_tests.program"},
    "jail": {
        "populate": "images.jail.populate",
        "users": "images.jail.users",
        "roots": "images.jail.populate:roots",
        "seff": "images.jail.seff",
        "ssh-session": "images.jail.ssh_session",
        "ssh-task": "images.jail.ssh_session:task",
        "known-host": "images.jail.known_host",
        "install-packages": "images.jail.packages",
    },
}
"""Folder below images/ -> program -> the module whose main() it runs, or `MODULE:FUNCTION`."""

LINKED = {
    "health": ("/usr/lib/slurmstack/around-job", ("health-prolog", "health-epilog")),
    "elastic": ("await-nodes", ("resume", "suspend", "resume-failed")),
}
"""Folder below images/ -> its program in C (images/health/native, images/elastic/native), and the names that it has."""

USERS_FROM = {
    "controller": "/var/spool/slurmctld/slurmstack/current",
    "worker": "/jail/etc",
    "login": "/jail/etc",
    "accounting": "/config/slurm",
    "rest": "/config/slurm",
    "exporter": "/config/slurm",
}
"""Where the pods of a role find users: what the configuration agent has published, the jail (slurmd and sshd look users
up outside it), or the mounted ConfigMap. The jail itself has them in its own files."""

IN_JAIL = ("worker", "login")
"""Roles whose pods lead users into the jail: they also see whether an account is locked."""

WITH_PACKAGES = ("dashboard", "rest")
"""Folders whose programs use Debian's Python packages besides Python's own library."""

# -S: most programs need nothing but Python's own library, and prolog and epilog start often.
LAUNCHER = """\
#!/usr/bin/python3 {options}
import sys

sys.path.insert(0, "{library}")
from {module} import {function}

sys.exit({function}())
"""


def install_programs(folder: str, root: Path) -> list[Path]:
    """Write one launcher per program of a folder."""
    directory = root / "usr/libexec/slurmstack"
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    options = "-I" if folder in WITH_PACKAGES else "-IS"
    for program, main in PROGRAMS[folder].items():
        path = directory / program
        module, _, function = main.partition(":")
        path.write_text(LAUNCHER.format(options=options, library=LIBRARY, module=module, function=function or "main"))
        path.chmod(0o755)
        written.append(path)
    called, names = LINKED.get(folder, ("", ()))
    for program in names:
        (directory / program).symlink_to(called)
    return written


def take_users(folder: str, root: Path) -> None:
    """Let the pods of a role know the users.

    libnss-extrausers reads /var/lib/extrausers, anew for each question: the links lead to files that change at run
    time. `sss` asks the SSSD of the pod, and is told at once that there is none where none is configured.
    """
    source = USERS_FROM.get(folder)
    if source is not None:
        extrausers = root / "var/lib/extrausers"
        extrausers.mkdir(parents=True, exist_ok=True)
        for name in ("passwd", "group", "shadow") if folder in IN_JAIL else ("passwd", "group"):
            link = extrausers / name
            link.unlink(missing_ok=True)
            link.symlink_to(f"{source}/{name}")
    services = "files sss" if source is None else "files extrausers sss"
    switch = root / "etc/nsswitch.conf"
    lines = []
    for line in switch.read_text().splitlines():
        database = line.partition(":")[0]
        lines.append(f"{database + ':':<16}{services}" if database in {"passwd", "group", "shadow"} else line)
    switch.write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Entry point."""
    root = Path("/")
    for folder in arguments:
        install_programs(folder, root)
    take_users(arguments[-1], root)
    (root / "usr/lib/slurmstack/images/__init__.py").touch()
    # Containers run on read-only layers: without this every start would compile the modules again.
    compileall.compile_dir(str(root / "usr/lib/slurmstack/images"), quiet=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
