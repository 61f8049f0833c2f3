"""The cluster's id, which slurmdbd gives: a slurmctld that ran without accounting has made up one of its own.

slurmctld keeps the id in `clustername` in its state directory, and ends with "CLUSTER ID MISMATCH" when slurmdbd knows
another one. It takes slurmdbd's where the file is missing (24.11.5 and 26.05.5, tried), and waits for slurmdbd then. So
the file goes away the first time that a cluster is to use slurmdbd, at a moment when slurmdbd answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.readiness import can_connect
from images.common.slurm_conf import setting, uses_database
from images.controller.configuration import STATE, Files

_OWN_ID: Final = "clustername"
_MARKER: Final = "slurmstack/accounting"
"""There once slurmctld has been told to use slurmdbd: its id is slurmdbd's from then on, and it starts without it."""

_DEFAULT_PORT: Final = "6819"


@dataclass(frozen=True, kw_only=True)
class ClusterId:
    """Whether slurmctld may read a configuration, as far as the cluster's id goes."""

    state: Path = STATE
    answers: Callable[[str], bool] = can_connect

    def obstacle(self, files: Files) -> str | None:
        """What slurmctld has to wait for before it reads these files, or None."""
        if not uses_database(files) or (self.state / _MARKER).exists():
            return None
        address = (
            f"{setting(files, 'AccountingStorageHost')}:{setting(files, 'AccountingStoragePort') or _DEFAULT_PORT}"
        )
        if self.answers(address):
            return None
        return f"slurmdbd at {address}, which gives the cluster its id"

    def prepare(self, files: Files) -> None:
        """Call when slurmctld is about to read these files, and nothing is in the way."""
        marker = self.state / _MARKER
        if not uses_database(files):
            marker.unlink(missing_ok=True)
        elif not marker.exists():
            (self.state / _OWN_ID).unlink(missing_ok=True)
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
