"""What happens beside slurmdbd until it serves: how far it is in its database is told, and one that hangs is ended.

At its start slurmdbd brings the tables of an older release up to date. That can take hours, in which it says nothing.
"""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.accounting.check_database import Storage, mariadb_client
from images.common.command import TIMED_OUT, Runner, run
from images.common.log import Log
from images.common.process import RefusedError, drop_privileges
from images.common.readiness import can_connect
from images.common.wait import REPEAT_SECONDS, Clock

SLURMDBD: Final = "/usr/sbin/slurmdbd"
ADDRESS: Final = "127.0.0.1:6819"

CONVERTING: Final = "converting the database"
"""Lines about that begin so: `slurmstack up` does not count the time in which there are some."""

HANGS_AFTER: Final = 60.0
"""Seconds without a connection to a database that answers. It tries again after 5 s, unless it hangs."""

POLL_SECONDS: Final = 2.0
_ASKING_SECONDS: Final = 60.0
_NEW: Final = "'4294967294'"
"""What it takes for the version of a database without tables (NO_VAL)."""


def ask(log: Callable[[str], None], env: Mapping[str, str], runner: Runner = run) -> None:
    """Log what slurmdbd thinks of its database (`slurmdbd -u`), whose tables it may change without a new version.

    Raises RefusedError where it would not start with it: nothing in the database is changed then.
    """
    done = runner([SLURMDBD, "-u"], timeout=_ASKING_SECONDS, env=env)
    if "fatal:" in done.stderr:
        raise RefusedError(f"slurmdbd refuses the database, in which nothing was changed: {done.message}")
    if done.code == TIMED_OUT or _NEW in done.stdout:
        return
    log(f"slurmdbd -u: {done.stdout.strip() or done.message}")


@dataclass(frozen=True, kw_only=True)
class Session:
    """A connection to the database, as it has it."""

    seconds: int
    """For how long it has been doing this."""
    state: str
    statement: str
    """Its begin; empty while it does nothing."""


def sessions_in(printed: str, database: str) -> list[Session]:
    """Those in the database, from what `SHOW PROCESSLIST` prints: Id User Host db Command Time State Info.

    MariaDB adds Progress, which is 0 where InnoDB changes a table in place, as here (tried).
    """
    lines = (line.split("\t") for line in printed.splitlines())
    return [
        Session(seconds=int(words[5]), state=words[6], statement="" if words[7] == "NULL" else words[7])
        for words in lines
        if len(words) >= 8 and words[3] == database and words[7] != "SHOW PROCESSLIST"
    ]


def watch(pid: int, storage: Storage, log: Callable[[str], None]) -> None:
    """Return when this slurmdbd serves, has ended, or was ended.

    One whose second connection fails, by a name that is not found for a moment, waits for a thread of its own for ever
    (slurmdbd.c, `end_it`; provoked with 24.11.5 and 26.05.5).
    """
    clock = Clock()
    at_work = said = clock.now()
    with mariadb_client(storage) as client:
        query = [*client, f"--database={storage.database}", "--execute=SHOW PROCESSLIST"]
        while Path(f"/proc/{pid}").exists() and not can_connect(ADDRESS):
            clock.sleep(POLL_SECONDS)
            done, now = run(query, timeout=30.0), clock.now()
            sessions = sessions_in(done.stdout, storage.database)
            if sessions or not done.ok:
                at_work = now
            elif now - at_work >= HANGS_AFTER:
                log(f"slurmdbd has had no connection to its database for {HANGS_AFTER:.0f} s: it is started anew")
                os.kill(pid, signal.SIGKILL)
                return
            busy = max((it for it in sessions if it.statement), key=lambda it: it.seconds, default=None)
            if busy and now - said >= REPEAT_SECONDS:
                said = now
                log(f"{CONVERTING}: {busy.statement[:60]}... ({busy.state}, for {busy.seconds} s)")


def start_watch(storage: Storage, log: Log, user: pwd.struct_passwd) -> None:
    """Watch what this process turns into, from one that is PID 1's child: slurmdbd does not reap its own."""
    pid = os.getpid()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    try:
        drop_privileges(user)
        watch(pid, storage, log)
    except Exception as error:  # noqa: BLE001  slurmdbd does its work without it
        log.failure(f"nobody tells how far slurmdbd is: {error!r}")
    finally:
        os._exit(0)
