"""Where the configuration comes from: the ConfigMap, through a watch on the API; or its mounted copy.

The watch sees a change at once; kubelet brings it to the mounted copy up to a minute later. The copy serves at boot
when the API server does not answer, and where there is no API server at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from images.common.follow import Follower
from images.common.kubernetes import Kube
from images.common.wait import Clock, Reminder
from images.controller.publish import config_hash, read_files

MOUNTED: Final = Path("/config/slurm")
BOOT_PATIENCE_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0


class Changes(queue.Queue[dict[str, str]]):
    """Configurations, each different from the one before."""

    _last = ""

    def offer(self, files: dict[str, str]) -> None:
        """Put one in if it is another one."""
        version = config_hash(files)
        if version != self._last:
            self._last = version
            self.put(files)


def follow_config_map(kube: Kube, name: str, changes: Changes, log: Callable[[str], None]) -> Follower[dict[str, str]]:
    """Offers the files of a ConfigMap, first as they are and then after every change."""

    def changed(found: Mapping[str, dict[str, str]]) -> None:
        if name in found:
            changes.offer(found[name])
        else:
            log(f"there is no ConfigMap {kube.namespace}/{name}; the configuration stays as it is")

    return Follower(
        kube, kube.path("configmaps"), lambda item: dict(item.get("data") or {}), log,
        fields=f"metadata.name={name}", retry=RETRY_SECONDS, changed=changed,
    )  # fmt: skip


def first_files(
    changes: Changes, log: Callable[[str], None], mounted: Path = MOUNTED, patience: float = BOOT_PATIENCE_SECONDS
) -> dict[str, str]:
    """The first configuration: the mounted copy where the API server says nothing for a while."""
    while True:
        try:
            return changes.get(timeout=patience)
        except queue.Empty:
            if (mounted / "slurm.conf").is_file():
                log(f"taking the mounted copy of the configuration in {mounted} for now")
                changes.offer(read_files(mounted))


class MountedSource:
    """Offers the files of a directory, first as they are and then after every change."""

    def __init__(self, mounted: Path, changes: Changes, log: Callable[[str], None], clock: Clock | None = None) -> None:
        self._mounted = mounted
        self._changes = changes
        self._clock = clock or Clock()
        self._reminder = Reminder(log, self._clock)

    def start(self) -> None:
        """Look in the background."""
        threading.Thread(target=self.run, daemon=True, name="config-source").start()

    def run(self) -> None:
        """Look again every second, for ever."""
        while True:
            self.poll()
            self._clock.sleep(POLL_SECONDS)

    def poll(self) -> None:
        """Look once."""
        try:
            files = read_files(self._mounted)
        except OSError:
            files = {}
        if "slurm.conf" not in files:
            self._reminder.waiting(f"{self._mounted}/slurm.conf")
        else:
            self._changes.offer(files)
