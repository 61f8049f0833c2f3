"""backups list|verify: what there is, as JSON in the last line, and whether it can be read."""

from __future__ import annotations

import json
import re
import sys
import time

from images.backup.backups import ID_FORMAT, backups_of, choose
from images.backup.identity import Clusters
from images.backup.restic import Credentials, last_words
from images.backup.settings import SECRET, Settings, environment
from images.common.command import Result
from images.common.files import lines_in
from images.common.log import Log
from images.common.process import CannotGoOnError, RefusedError, program


def list_backups(log: Log) -> None:
    """Print all backups as one line of JSON; with `WHAT`, only the one that a restore of these parts would take."""
    repository = Settings.read().open(Credentials.read(SECRET))
    repository.open(make=False, log=log)
    found = backups_of(repository.snapshots())
    if parts := environment("WHAT").split():
        now, is_same = time.strftime(ID_FORMAT, time.gmtime()), Clusters(repository, found, log).is_same
        found = [choose(found, environment("AT"), parts, now=now, is_same=is_same)]
    print(json.dumps([backup.as_data() for backup in found]))


def verify(log: Log) -> None:
    """Check that the repository is whole, and read a share of its content (`READ`: `5%`, or `all`)."""
    repository = Settings.read().open(Credentials.read(SECRET))
    repository.open(make=False, log=log)
    share = environment("READ", "5%")
    read = ["--read-data"] if share == "all" else [f"--read-data-subset={share}"]
    done = repository.run("check", "--quiet", *read)
    if not done.ok:
        what = f"the repository {repository.url} is damaged, or cannot be read"
        if done.code != 1:
            raise repository.problem(what, done)
        raise RefusedError(
            f"{what}: {_damage(done)}\nOlder versions of its objects, where the bucket keeps them, bring it back; "
            "docs/restore.md says how to save what is whole"
        )
    log(f"the repository is whole; read: {share}")


def _damage(done: Result) -> str:
    """What restic says of single objects, which it names by numbers; else its last words."""
    named = [line.strip() for line in lines_in(done.stderr) if re.search(r"pack.*\b[0-9a-f]{8,}", line)]
    return " | ".join(named[:3]) or last_words(done)


COMMANDS = {"list": list_backups, "verify": verify}


def main() -> None:
    """Entry point."""
    with program("backups") as log:
        command = sys.argv[1] if len(sys.argv) > 1 else ""
        if command not in COMMANDS:
            raise CannotGoOnError(f"{command!r} is no command: {', '.join(COMMANDS)}")
        COMMANDS[command](log)
