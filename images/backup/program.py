"""backup STEP: what each container of a backup, a restore or a rehearsal runs, in this order.

A backup: `state` saves slurmctld's state, then the keys, then the database; `jail` saves the jail, and forgets what is
too old. State before database: a job that has started in between waits again after a restore, and has a record too
many. The other way round it would run without one. A restore: `restore-state` puts the database back, then the state,
whose job ids go on above those of accounting; `restore-jail` follows. `list` and `verify` look, `rehearse` tries.
"""

from __future__ import annotations

import sys
from typing import Final

from images.backup import backups, rehearse, restore
from images.common.process import program

STEPS: Final = {
    "state": backups.save_state, "jail": backups.save_jail, "list": backups.list_backups, "verify": backups.verify,
    "restore-state": restore.restore_state, "restore-jail": restore.restore_jail, "rehearse": rehearse.rehearse,
}  # fmt: skip


def main() -> None:
    """Entry point."""
    with program("backup") as log:
        STEPS[sys.argv[1]](log)
