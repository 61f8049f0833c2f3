"""Which cluster a backup is of. A cluster is known by its keys: a rotation changes one of them, and the others stay.

Snapshots have a name of their cluster in a tag, so that the keys are read only where two names meet. It is a print of
munge's key at the first backup; the later ones of the same cluster take it over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from images.backup.backups import Backup
from images.backup.restic import Repository, last_words
from images.backup.settings import HANDOVER
from images.common.log import Log

SAVED = HANDOVER / "keys"
"""Where the keys lie when they are saved, and so in the snapshot."""

READ = HANDOVER / "of-another-backup"
"""Where those of another backup lie for a moment."""


def files(keys: Path) -> list[Path]:
    """Those of Secrets: in their volumes they are links, beside others to directories."""
    return [file for file in sorted(keys.glob("*/*")) if file.is_file() and not file.name.startswith("..")]


def prints(keys: Path) -> frozenset[str]:
    """One of each key."""
    return frozenset(sha256(content).hexdigest() for file in files(keys) if (content := file.read_bytes()))


def new_name(keys: Path) -> str:
    """For a cluster that has no backup yet."""
    munge = b"".join(file.read_bytes() for file in files(keys) if file.parent.name == "munge-key")
    return sha256(munge).hexdigest()[:12]


class Clusters:
    """Whether names in a repository are of one cluster."""

    def __init__(self, repository: Repository, backups: Sequence[Backup], log: Log) -> None:
        self._repository = repository
        self._with_keys = [backup for backup in backups if "keys" in backup.snapshots]
        self._log = log

    def name_of(self, keys: Path) -> str:
        """Of the cluster that has these keys now."""
        own, mine = new_name(keys), prints(keys)
        known = list(dict.fromkeys(backup.cluster for backup in reversed(self._with_keys)))
        if own in known:
            return own
        return next((name for name in known if mine & self._prints(reversed(self._with_keys), name)), own)

    def is_same(self, older: str, newer: str) -> bool:
        """Whether the last backup of the one name has a key in common with the first of the other."""
        return bool(self._prints(reversed(self._with_keys), older) & self._prints(self._with_keys, newer))

    def _prints(self, backups: Iterable[Backup], name: str) -> frozenset[str]:
        """Of the keys in the first of these backups that is of this name; none where they cannot be read."""
        backup = next((backup for backup in backups if backup.cluster == name), None)
        if backup is None:
            return frozenset()
        try:
            what = f"{backup.snapshots['keys']}:{SAVED}"
            done = self._repository.run("restore", what, "--target", str(READ), "--quiet")
            if not done.ok:
                self._log.failure(f"the keys in backup {backup.id} cannot be read: {last_words(done)}")
                return frozenset()
            return prints(READ)
        finally:
            shutil.rmtree(READ, ignore_errors=True)
