"""Checks a configuration by starting a scratch slurmctld with it.

slurmctld has no option that only tests a configuration, and a running one dies of a bad line at `scontrol reconfigure`.
So the same binary is started with the same files in a directory of its own, until it is up or gives up. That takes
about 0.05 s.

The scratch slurmctld must not register with the accounting database, power nodes on or off, or touch the state of the
real one: it gets the files less everything that would reach outside (`scratch_files`). Lines keep their numbers, so
that its messages fit the file that the user wrote. What it does not see cannot be said in a stack file
(config/sections/slurm.py), or only what is plainly well-formed is left out: what is tried is what will run.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from images.common.files import JWT_KEY, write_atomically
from images.common.slurm_conf import uses_database, with_included
from images.controller.configuration import TOPOLOGY_CONF, Files

TIMEOUT_SECONDS: Final = 10.0
_UP: Final = "Running as primary controller"
_HOPELESS: Final = "retrying in 1sec up to 60sec"
"""slurmctld waits a minute for a file that a shared file system may still bring; here all files are already there."""

_NOISE: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"error: Configured MailProg is invalid",  # Slurm's own default is not in the image
        # 26.05 of its own default and our interval. A round of checks may take 40 s, and the next one waits for it.
        r"error: HealthCheckTimeout \(60\) must be less than HealthCheckInterval",
        r"error: Could not open \w+ state file ",
        r"error: NOTE: Trying backup (?:\w+ )?save file",
        r"error: High latency for \d+ calls to gettimeofday",
        r"error: _xgetaddrinfo: getaddrinfo\(\) failed",
        r"error: .*[Cc]onnection refused",
        r"error: Unable to (?:resolve|contact) ",
        # Without slurmdbd, which the scratch slurmctld must not talk to, there is nowhere to store it.
        r"error: Job accounting information gathered, but not stored",
        # It must power no node on or off, and has no program for it.
        r"error: power_save module disabled, NULL (?:Suspend|Resume)Program",
    )
)
"""`error:` lines that come from the scratch slurmctld's empty state, from the network of the moment, or from what
`scratch_files` leaves out."""

_PREFIX: Final = re.compile(r"^(?:slurmctld: )?(?:\[[^\]]*\] )?(?:slurmctld: )?")
"""Whatever the time looks like with the `LogTimeFormat` that is tried."""

_COMPLAINT: Final = re.compile(r"^(?:error|fatal): ")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What slurmctld says about a configuration."""

    starts: bool
    complaints: tuple[str, ...]
    """`error:` and `fatal:` lines without time stamps, in order."""

    def rejection(self, known: tuple[str, ...] = ()) -> str | None:
        """Why the configuration is not taken, or None. `known`: complaints of the one in force: nothing new."""
        new = [line for line in self.complaints if line not in known]
        if self.starts and not new:
            return None
        return "\n".join(new or self.complaints or ("slurmctld does not start with it and does not say why",))


def clean(line: str, directory: str) -> str:
    """A line of slurmctld's log without its time stamp and without the scratch directory's name."""
    return _PREFIX.sub("", line.rstrip()).replace(f"{directory}/", "")


def declared_groups(files: Files) -> frozenset[str]:
    """Groups that are published with slurm.conf: only then does this machine know them, and slurmctld ask for them."""
    return frozenset(line.partition(":")[0] for line in files.get("group", "").splitlines())


def complaints_in(lines: list[str]) -> tuple[str, ...]:
    """The lines that speak against a configuration, each once."""
    complaints = dict.fromkeys(line for line in lines if _COMPLAINT.match(line))
    return tuple(line for line in complaints if not any(noise.match(line) for noise in _NOISE))


def check(
    files: Files, *, program: str = "/usr/sbin/slurmctld", user: str = "slurm", timeout: float = TIMEOUT_SECONDS
) -> Verdict:
    """Say whether slurmctld starts with these files, and what it complains about."""
    if "slurm.conf" not in files:  # somebody has edited the ConfigMap
        return Verdict(starts=False, complaints=("error: there is no slurm.conf in the configuration",))
    with tempfile.TemporaryDirectory(prefix="slurmstack-check-", ignore_cleanup_errors=True) as directory:
        root, owner = Path(directory), pwd.getpwnam(user)
        (root / "state").mkdir()
        write_atomically(root / JWT_KEY.name, secrets.token_bytes(32), mode=0o600)
        for name, content in scratch_files(files, directory, _free_ports()).items():
            (root / name).write_text(content, encoding="utf-8")
        for path in (root, *root.iterdir()):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        lines, timed_out = _run([program, "-D", "-c", "-v", "-f", f"{directory}/slurm.conf"], directory, timeout)
    complaints = complaints_in(lines)
    if timed_out:
        last = lines[-1] if lines else "(none)"
        complaints += (f"error: slurmctld is not up after {timeout:g} s; its last line: {last}",)
    return Verdict(starts=any(_UP in line for line in lines), complaints=complaints)


def _run(command: list[str], directory: str, timeout: float) -> tuple[list[str], bool]:
    """What a scratch slurmctld says until it is up or gives up, and whether it has done neither in time."""
    own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": f"{directory}/slurm.conf"}
    process = subprocess.Popen(
        command, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=own, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    found: list[str] = []
    # In a thread: a helper that has left the process group holds the pipe open for as long as it lives.
    reader = threading.Thread(target=_read_until_clear, args=(process.stdout, directory, found), daemon=True)
    reader.start()
    reader.join(timeout)
    timed_out, lines = reader.is_alive(), list(found)
    # The scratch slurmctld has nothing worth saving, and neither have its helpers.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return lines, timed_out


def _read_until_clear(output: IO[str], directory: str, lines: list[str]) -> None:
    """Add what slurmctld says to `lines`, until it says that it is up or gives up, or says nothing more."""
    with output:
        for line in output:
            lines.append(clean(line, directory))
            if _UP in line or _HOPELESS in line:
                return


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("", 0))
        second.bind(("", 0))
        return first.getsockname()[1], second.getsockname()[1]


_DROPPED: Final = (
    "SlurmctldLogFile", "SlurmSchedLogFile", "ResumeProgram", "ResumeFailProgram", "SuspendProgram",
    "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg",
)  # fmt: skip
"""Left out: what it would write elsewhere, and programs that would run without any job."""

_DROPPED_WITH_DATABASE: Final = {
    **dict.fromkeys(
        (
            "AccountingStorageType", "AccountingStorageHost", "AccountingStorageBackupHost", "AccountingStoragePort",
            "AccountingStoragePass", "AccountingStorageUser", "AccountingStorageExternalHost", "AccountingStorageTRES",
            "PriorityWeightTRES",
        ),
        r"\S+",
    ),
    "AccountingStorageEnforce": r"(?:(?:all|none|no|associations|limits|nojobs|nosteps|qos|safe|wckeys|,)+(?!\S))",
    "AccountingStoreFlags": r"(?:(?:job_comment|job_env|job_extra|job_script|no_stdio|,)+(?!\S))",
    **dict.fromkeys(("PriorityWeightAge", "PriorityWeightFairshare"), r"\d{1,9}(?!\S)"),
}  # fmt: skip
"""Key and the values that are left out where slurmdbd is used, as they are an error without it. Slurm sees others."""

_LEAF_NODES: Final = re.compile(r"(?im)(?<!\S)Nodes\s*=\s*\S+")
_STAND_IN: Final = "slurmstack-scratch-"

_PARTITION_DATABASE_KEYS: Final = (
    "AllowQos", "DenyQos", "QOS", "AllowAccounts", "DenyAccounts", "TRESBillingWeights",
)  # fmt: skip
"""Refer to what only the database knows."""

_ALLOW_GROUPS: Final = re.compile(r"(?i)(?<!\S)AllowGroups\s*=\s*(\S+)")


def _without(line: str, keys: Iterable[str], value: str = r"\S+") -> str:
    names = "|".join(map(re.escape, keys))
    return re.sub(rf"(?i)(?<!\S)(?:{names})\s*=\s*(?:\"[^\"]*\"|{value})", "", line)


def _without_groups(line: str, known: frozenset[str]) -> str:
    """A partition's line without the groups that will be known once the files are published."""

    def unknown(found: re.Match[str]) -> str:
        names = [name for name in found[1].split(",") if name not in known]
        return f"AllowGroups={','.join(names)}" if names else ""

    return _ALLOW_GROUPS.sub(unknown, line)


def scratch_files(files: Files, directory: str, ports: tuple[int, int]) -> dict[str, str]:
    """The files as the scratch slurmctld gets them, which keeps things in a directory and takes two ports.

    The key of the tokens is one of its own: the real one is slurmctld's, and may not be there yet.
    """
    own = {
        "SlurmctldPort": ports[0],
        "SlurmdPort": ports[1],
        "StateSaveLocation": f"{directory}/state",
        "SlurmctldPidFile": f"{directory}/slurmctld.pid",
    }
    database = uses_database(files)
    keys = [*own, *_DROPPED]
    groups = declared_groups(files)
    result = dict(files)
    for name, content in with_included(files).items():
        lines = []
        for line in content.splitlines():
            if line.lstrip().startswith("#"):
                lines.append(line)
                continue
            changed = _without(line, keys)
            for key, value in _DROPPED_WITH_DATABASE.items() if database else ():
                changed = _without(changed, [key], value)
            if changed.lstrip().lower().startswith("partitionname="):
                changed = _without_groups(changed, groups)
                changed = _without(changed, _PARTITION_DATABASE_KEYS) if database else changed
            lines.append(changed.replace(str(JWT_KEY), f"{directory}/{JWT_KEY.name}"))
        result[name] = "\n".join(lines) + "\n"
    result["slurm.conf"] += "".join(f"{key}={value}\n" for key, value in own.items())
    if TOPOLOGY_CONF in files:
        result[TOPOLOGY_CONF], nodes = _with_stand_ins(files[TOPOLOGY_CONF])
        result["slurm.conf"] += nodes
    return result


def _with_stand_ins(topology: str) -> tuple[str, str]:
    """The tree with one node of our own below each leaf switch, and the line that makes these nodes.

    The scratch slurmctld knows no dynamic node, and would complain about each.
    """
    parts = _LEAF_NODES.split(topology)
    count = len(parts) - 1
    tree = "".join(f"{part}Nodes={_STAND_IN}{number}" for number, part in enumerate(parts[:-1])) + parts[-1]
    return tree, f"NodeName={_STAND_IN}[0-{count - 1}] NodeAddr=127.0.0.1 State=FUTURE\n" if count else ""
