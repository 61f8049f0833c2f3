"""Puts queue and records of a backup into daemons of its own, starts them, and compares; JSON at the end.

All is in one container, with a key of munge and a password that it has made up: whom slurmctld and slurmdbd find in
what was put back, nodes above all, takes nothing from them. Nothing of the cluster is mounted.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from images.accounting.check_database import Storage, storage_of, with_password
from images.backup import database, state
from images.backup.backups import ID_FORMAT, readable
from images.backup.restic import STAGE, STATE
from images.backup.restore import fetch_state, load
from images.common.command import run
from images.common.files import Owner, own_tree, write_atomically
from images.common.log import Log
from images.common.mariadb import PASSWORD
from images.common.process import CannotGoOnError
from images.common.sidecars import MUNGE_KEY

CONF: Final = STAGE / "conf"
"""Files of Slurm, and logs of all that is started."""

NEWEST: Final = 500
"""Records of accounting that slurmdbd is asked for, the last of them."""

_CLUSTER: Final = Path("/config/slurm")
_PROGRAMS: Final = "/usr/libexec/slurmstack"

_CONVERTING_SECONDS: Final = 4 * 3600.0
"""As in components/accounting.py: slurmdbd converts a database of an older Slurm first."""

_ANSWER_SECONDS: Final = 120.0
_SAVED_WITHIN: Final = 10
"""Seconds after which slurmctld has saved a job that it has accepted: it does so within five."""

_SLURMDBD_CONF: Final = f"""\
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
PidFile={CONF}/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3306
StorageUser=slurm
StorageLoc=slurm_acct_db
"""

_LEFT_OUT: Final = frozenset({
    "prologslurmctld", "epilogslurmctld", "jobcomphost", "jobcomploc", "jobcompparams", "jobcomppass", "jobcompport",
    "jobcompuser", "resumeprogram", "suspendprogram", "resumefailprogram", "maildomain", "slurmctldprimaryonprog",
    "slurmctldprimaryoffprog", "rebootprogram", "accountingstorageexternalhost", "resvprolog", "resvepilog",
    "burstbuffertype", "slurmctldaddr", "authalttypes", "authaltparameters", "topologyplugin", "topologyparam",
})  # fmt: skip
"""Keys of slurm.conf, in small letters, by which slurmctld would run something or reach somebody, or needs a file that
only the cluster has."""


def scratch_conf(text: str) -> str:
    """The cluster's slurm.conf for a slurmctld of this container: it starts no job, and tells nobody anything."""
    own = {
        "SlurmctldHost": f"{socket.gethostname()}(127.0.0.1)",
        "SlurmctldPidFile": str(CONF / "slurmctld.pid"),
        "StateSaveLocation": str(STATE),
        # Nobody registers, and no job of the backup's time is to be given up for that while it is looked at.
        "SlurmdTimeout": "0", "HealthCheckInterval": "0", "MailProg": "/bin/true", "JobCompType": "jobcomp/none",
    }  # fmt: skip
    if "accounting_storage/slurmdbd" in text:
        own["AccountingStorageHost"] = "127.0.0.1"
    dropped = _LEFT_OUT | {key.lower() for key in own}
    kept = (line for line in text.split("\n") if line.partition("=")[0].strip().lower() not in dropped)
    return "\n".join([*map(_closed, kept), *(f"{key}={value}" for key, value in own.items())]) + "\n"


def _closed(line: str) -> str:
    """A partition is down: no job starts in it, whatever comes."""
    if not line.lower().startswith("partitionname="):
        return line
    return re.sub(r"(?i)\sState=\S+", "", line) + " State=DOWN"


def queued(backup: str, opened: Collection[str], scripts: Collection[str]) -> set[str]:
    """Jobs that slurmctld must have, of those without an end in the dump: `scripts` has those of the backup.

    What was submitted later came between the two parts of the backup.
    """
    begun = datetime.strptime(backup, ID_FORMAT).replace(tzinfo=UTC).timestamp()
    known = [line.split("\t") for line in opened]
    return {job for job, *array, time in known if int(time) < begun - _SAVED_WITHIN and {job, *array} & {*scripts}}


def lost(dumped: Mapping[str, set[str]], answered: Mapping[str, set[str]]) -> list[str]:
    """What the backup has, and the daemons that were started from it do not know."""
    gone = {what: sorted(dumped[what] - answered[what]) for what in dumped}
    return [f"{len(each)} {what}, such as {', '.join(each[:10])}" for what, each in gone.items() if each]


class Daemons:
    """What is started, and asked. All of it ends with the container."""

    def __init__(self, log: Log) -> None:
        self._log = log
        mine = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "RESTIC_", "TMPDIR"))}
        self._env = {**mine, "SLURM_CONF": str(CONF / "slurm.conf")}
        self.seconds: dict[str, float] = {}
        """Until each was ready."""

    def start(
        self, command: Sequence[str], ready: Callable[[], bool], *, seconds: float = 600.0, user: str | None = None
    ) -> None:
        """Start one, and wait until it is ready. Raises CannotGoOnError with its last words."""
        name = Path(command[0]).name
        self._log(f"starting {name}")
        log_file, begun = CONF / f"{name}.log", time.monotonic()
        with log_file.open("wb") as file:
            process = subprocess.Popen(
                command, env=self._env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, user=user, group=user,
                extra_groups=None if user is None else [],
            )  # fmt: skip
        while not ready():
            if process.poll() is not None or time.monotonic() - begun > seconds:
                words = " | ".join(log_file.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-5:])
                raise CannotGoOnError(f"{name} does not start with what is in the backup: {words}")
            time.sleep(0.2)
        self.seconds[name] = round(time.monotonic() - begun, 1)

    def answers(self, *command: str) -> bool:
        """Whether a command succeeds."""
        return run(command, env=self._env).ok

    def words(self, *command: str) -> set[str]:
        """What a command of Slurm prints. Raises CannotGoOnError."""
        done = run(command, timeout=_ANSWER_SECONDS, env=self._env)
        if not done.ok:
            raise CannotGoOnError(f"{command[0]}: {done.message}")
        return {*done.stdout.split()}


def _prepare(owner: Owner) -> Storage:
    """Write what the daemons read, with a password of its own. Returns the way to the database.

    `FILES`: those of another release, as JSON; else they are those of the cluster.
    """
    CONF.mkdir()
    STATE.mkdir(mode=0o700)
    own = {path.name: path.read_text(encoding="utf-8") for path in _CLUSTER.glob("*.*") if path.is_file()}
    given = json.loads(os.environ.get("FILES") or json.dumps(own))
    # The plugin of plugstack.conf is in other images.
    files = {
        name: text for name, text in given.items() if name.endswith((".conf", ".lua")) and name != "plugstack.conf"
    }
    for name, content in files.items():
        (CONF / name).write_text(scratch_conf(content) if name == "slurm.conf" else content, encoding="utf-8")
    password = secrets.token_hex(16)
    PASSWORD.write_text(password, encoding="utf-8")
    MUNGE_KEY.write_bytes(secrets.token_bytes(128))
    write_atomically(CONF / "slurmdbd.conf", with_password(_SLURMDBD_CONF, password), mode=0o600)
    own_tree(CONF, owner)
    return storage_of(_SLURMDBD_CONF, password)


def rehearse(log: Log) -> None:
    """Print how it has ended. Raises CannotGoOnError where it could not be put back, or is not as it was."""
    begun, user = time.monotonic(), pwd.getpwnam("slurm")
    owner, cluster = (user.pw_uid, user.pw_gid), os.environ.get("CLUSTER_NAME", "")
    backup = readable(["state", *(["database"] if cluster else [])])
    log(f"putting backup {backup.id} into daemons of its own")
    storage, daemons = _prepare(owner), Daemons(log)
    daemons.start([f"{_PROGRAMS}/munged"], lambda: daemons.answers("munge", "--no-input"))
    fetch = partial(fetch_state, backup.snapshot("state"))
    state.put_back(STATE, fetch, backup=backup.id, highest=0, log=log)
    dumped, answered = dict[str, set[str]](), dict[str, set[str]]()
    if cluster:
        probe = ("mariadb", "--defaults-file=/run/mysqld/probe.cnf", "--execute", "SELECT 1")
        daemons.start([f"{_PROGRAMS}/mariadbd"], lambda: daemons.answers(*probe))
        with database.opened(storage, log) as target:
            load(target, backup.snapshot("database"), cluster)
            dumped = target.records(cluster, NEWEST)
        knows = partial(daemons.answers, "sacctmgr", "--noheader", "show", "cluster")
        daemons.start(["/usr/sbin/slurmdbd", "-D"], knows, seconds=_CONVERTING_SECONDS, user="slurm")
        (STATE / "clustername").unlink(missing_ok=True)  # as images/controller/slurmctld.py: it takes slurmdbd's id
        answered = _records(daemons, cluster, dumped["jobs"])
    scripts = {path.name.removeprefix("job.") for path in STATE.glob("hash.*/job.*")}  # slurmctld removes some
    own_tree(STATE, owner)
    never_saved = (STATE / "clustername").exists() and not (STATE / "assoc_usage").exists()  # as there
    slurmctld = ["/usr/sbin/slurmctld", "-D", *(["-i"] if never_saved else []), "-f", str(CONF / "slurm.conf")]
    daemons.start(slurmctld, lambda: daemons.answers("squeue"))  # it may read its queue for a while
    answered["in the queue"] = daemons.words("squeue", "--all", "--states=all", "--noheader", "--format=%A")
    dumped["in the queue"] = queued(backup.id, dumped.pop("open", ()), scripts)
    if problems := lost(dumped, answered):
        raise CannotGoOnError(f"backup {backup.id} is NOT as it was; Slurm has lost {'; '.join(problems)}")
    seconds = {**daemons.seconds, "total": round(time.monotonic() - begun, 1)}
    found = {what: len(each) for what, each in dumped.items()}
    print(json.dumps({"backup": backup.id, "seconds": seconds, "found": found}))


def _records(daemons: Daemons, cluster: str, newest: Collection[str]) -> dict[str, set[str]]:
    """What slurmdbd has of what a dump has."""
    as_list = ("--noheader", "--parsable2")
    sacct = ("sacct", "--allusers", "--allocations", "--duplicates", *as_list, "--format=JobIDRaw")
    of_cluster = (f"cluster={cluster}", "format=id")
    return {
        "jobs": daemons.words(*sacct, "--starttime=1970-01-02", f"--jobs={','.join(newest)}") if newest else set(),
        "associations": daemons.words("sacctmgr", *as_list, "show", "associations", *of_cluster),
        "users": daemons.words("sacctmgr", *as_list, "show", "user", "format=user"),
    }
