"""A "pod" without Kubernetes: one set of namespaces with the root file system of one of the images."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components import exporter, rest
from slurm.rights import CAPABILITIES, INTO_JAIL, TEMPORARY, WITHOUT_JAIL

LIBEXEC = "/usr/libexec/slurmstack"

POD_INIT = r"""
set -e
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
cd "$WORK/root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p secrets/munge config/slurm
# As kubelet and containerd leave them: volumes of the pod's own that anybody may write, the file for last words too,
# and settings of the kernel that nobody may.
for directory in $EMPTY; do mkdir -p $directory; mount -t tmpfs -o mode=777 tmpfs $directory; done
touch dev/termination-log; chmod 666 dev/termination-log
mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
for pair in $BINDS; do mkdir -p "./${pair#*:}"; mount --bind "${pair%%:*}" "./${pair#*:}"; done
hostname "$NAME"
printf '%s\n' "$NAME" > "$WORK/hostname"
# As in a cluster, that there is no such name is known at once. Slurm asks a server that is away for ten seconds.
sed -i 's/^hosts:.*/hosts: files/' etc/nsswitch.conf
for file in hosts resolv.conf hostname; do touch "$WORK/$file" etc/$file; mount --bind "$WORK/$file" etc/$file; done
ip link set lo up
# As a container's root is: not a chroot, in which the kernel makes no user namespace for anybody.
mount --make-rprivate /
pivot_root . .
umount -l .
# The first process only reaps: daemons are started beside it, and all end with it.
# It has no more than the daemons, which write into its log.
exec chroot . setpriv --bounding-set="$RIGHTS" \
    /bin/bash -c 'trap "exit 0" TERM; touch /run/pod-is-up; while :; do sleep 3600 & wait $!; done'
"""


_NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net")

HANG_SECONDS = 180.0
"""Limit of every wait: far beyond what anything takes on a busy machine. It ends what hangs, and measures nothing."""


def wait_until(condition: Callable[[], bool], what: str | Callable[[], str], timeout: float = HANG_SECONDS) -> float:
    """Poll until it holds; returns the seconds that took. Fails the test with `what` when time runs out.

    A callable is asked only then, so that logs have what happened meanwhile.
    """
    started = time.monotonic()
    pause = 0.02
    while not condition():
        if time.monotonic() - started > timeout:
            raise AssertionError(f"not within {timeout:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(pause)
        pause = min(pause * 1.3, 0.3)  # most conditions start a program in the pod, and five tests share the machine
    return time.monotonic() - started


EMPTY_DIRECTORIES = {
    "controller": ("run/munge", "run/munged", "run/slurmstack"),
    "worker": ("run/munge", "run/munged", "run/slurm", "var/spool/slurmd", "dev/shm", "tmp"),
    "login": ("run/munge", "run/munged", "run/slurm", "tmp"),
    "accounting": ("run/munge", "run/munged", "run/slurmstack", "run/slurmdbd"),
    "database": ("run/mysqld",),
    "rest": ("run/slurmstack", "run/nginx"),
}
"""Role -> the volumes of type emptyDir in its pods."""


CONTAINER = r"""
mount -o remount,bind,ro /
case $0 in *tmp*) ;; *) mount -t tmpfs -o ro tmpfs /tmp;; esac
case $0 in *alone*) mount -t tmpfs -o ro tmpfs /secrets;; esac
exec "$@"
"""
"""A container's root file system: only its volumes can be written."""


WITHOUT_SECRETS = frozenset({"backup-jail", "restore-jail"})
"""Containers that lack the Secrets which others of their pod have."""

UIDS = {"slurmrestd": rest.UID, "rest-proxy": rest.UID, "dashboard": rest.UID, "exporter": exporter.UID}
"""Programs in containers that never are root, and who they are."""


def _kept(names: Iterable[str]) -> str:
    """A bounding set for setpriv."""
    return ",".join(("-all", *(f"+{name.lower()}" for name in names)))


def _container_of(program: str, env: Mapping[str, str]) -> list[str]:
    """Puts a program into a container of its own, as far as it matters here: capabilities and mounts.

    Those that lead into the jail keep the mounts of the pod, as tests look at them.
    """
    without_jail = program == "slurmd" and not env.get("JAIL")
    kept = _kept(WITHOUT_JAIL if without_jail else CAPABILITIES.get(program, ()))
    rights = ["setpriv", "--inh-caps=-all", f"--bounding-set={kept}"]
    if program in UIDS:
        uid = env.get("RUN_AS", str(UIDS[program]))
        rights += [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    if program in {"sshd", "worker-sshd", "slurmd"}:
        return rights
    apart = ["unshare", "--mount", "--propagation=private"]
    if program != "sssd":
        how = ("tmp" if program in TEMPORARY else "", "alone" if program in WITHOUT_SECRETS else "")
        apart += ["sh", "-ec", CONTAINER, "-".join(how)]
    return [*apart, *rights, "--no-new-privs"]


@dataclass
class Pod:
    """One set of namespaces with a root file system of one role."""

    name: str
    role: str
    lower: str
    work: Path
    binds: Mapping[Path, str]
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment of the pod's first process, as far as programs of the images look at it."""
    beside: Pod | None = None
    """The pod of which this is another container: it has that one's network."""
    holder: subprocess.Popen[bytes] | None = None
    pid: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        for part in ("upper", "work", "root"):
            (self.work / part).mkdir(parents=True)
        # Of a worker it is slurmd itself, whose children may read its environment, and those of jobs may not.
        in_jail = self.role != "worker" or bool(self.env.get("JAIL"))
        env = {
            **os.environ,
            **self.env,
            "NAME": self.name,
            "LOWER": self.lower,
            "WORK": str(self.work),
            "RIGHTS": _kept(name for name in (INTO_JAIL if in_jail else WITHOUT_JAIL) if name != "SYS_ADMIN"),
            "EMPTY": " ".join(EMPTY_DIRECTORIES.get(self.role, ("run/munge", "run/munged"))),
            "BINDS": " ".join(f"{source}:{target.lstrip('/')}" for source, target in self.binds.items()),
        }
        network = [] if self.beside is None else ["nsenter", f"--target={self.beside.pid}", "--net"]
        own = [kind for kind in _NAMESPACES if not (network and kind == "--net")]
        unshare = [*network, "unshare", *own, "--fork", "--kill-child", "--propagation", "private"]
        log = (self.work / "pod.log").open("wb")
        self.holder = subprocess.Popen(
            [*unshare, "sh", "-c", POD_INIT], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        wait_until(self._find_first_process, f"pod {self.name}: {(self.work / 'pod.log').read_text()}")
        wait_until(self._is_up, f"pod {self.name}: {(self.work / 'pod.log').read_text()}")

    def _find_first_process(self) -> bool:
        assert self.holder is not None
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        found = children.read_text().split() if children.exists() else []
        self.pid = int(found[0]) if found else 0
        return bool(found)

    def _is_up(self) -> bool:
        assert self.holder is not None
        if self.holder.poll() is not None:
            raise AssertionError(f"pod {self.name} did not start:\n{(self.work / 'pod.log').read_text()}")
        return Path(f"/proc/{self.pid}/root/run/pod-is-up").exists()

    @property
    def root(self) -> Path:
        """The pod's root file system as seen from here."""
        return Path(f"/proc/{self.pid}/root")

    def command(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        """`argv` as a process of this pod."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        variables = {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8"}
        clean = ["env", "-i", *(f"{key}={value}" for key, value in [*variables.items(), *(env or {}).items()])]
        return ["nsenter", f"--target={self.pid}", *_NAMESPACES, "--root", "--wdns=/", *clean, *argv]

    def run(
        self,
        argv: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = HANG_SECONDS,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; a string goes through the shell."""
        command = ["bash", "-c", argv] if isinstance(argv, str) else list(argv)
        full = self.command(command, {**self.slurm_env, **(env or {})})
        return subprocess.run(full, capture_output=True, text=True, timeout=timeout, input=stdin, check=False)

    @property
    def slurm_env(self) -> dict[str, str]:
        """What Slurm's commands need to find their configuration."""
        return {"SLURM_CONF": "/var/spool/slurmctld/slurmstack/current/slurm.conf"} if self.role == "controller" else {}

    def start_program(
        self, program: str, env: Mapping[str, str] | None = None, *arguments: str, container: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one of the image's programs; its output is in `log(program)`. `container`: if its name is another."""
        command = [*_container_of(container or program, env or {}), f"{LIBEXEC}/{program}", *arguments]
        with (self.work / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(self.command(command, env), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def log(self, program: str) -> str:
        """What a program has written so far."""
        path = self.work / f"{program}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """End everything that runs in the pod. Again it does nothing: its number may be another process's by then."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.pid = 0
        for process in [*self.processes, *([self.holder] if self.holder else [])]:
            process.wait(HANG_SECONDS)
        self.processes.clear()
