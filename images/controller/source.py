"""Where the configuration comes from: the ConfigMap, through a watch on the API; or its mounted copy.

The watch sees a change at once; kubelet brings it to the mounted copy up to a minute later. The copy serves at boot
when the API server does not answer, and where there is no API server at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.wait import Clock, Reminder
from images.controller.kube import Kube, KubeError, Object
from images.controller.publish import config_hash, read_files

MOUNTED: Final = Path("/config/slurm")
BOOT_PATIENCE_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0

Changes = queue.Queue[dict[str, str]]


class ConfigMapSource:
    """Puts the files of a ConfigMap into a queue, first as they are and then after every change."""

    def __init__(
        self,
        kube: Kube,
        name: str,
        changes: Changes,
        log: Callable[[str], None],
        *,
        mounted: Path = MOUNTED,
        clock: Clock | None = None,
    ) -> None:
        self._kube = kube
        self._name = name
        self._changes = changes
        self._log = log
        self._mounted = mounted
        self._clock = clock or Clock()
        self._last: str | None = None

    def run(self) -> None:
        """Watch for ever."""
        started = self._clock.now()
        reminder = Reminder(self._log, self._clock)
        while True:
            try:
                self._read_and_watch()
                reminder = Reminder(self._log, self._clock)
            except KubeError as error:
                if error.status != 410:
                    reminder.waiting(f"the API server: {error}")
                self._clock.sleep(RETRY_SECONDS)
            if (
                self._last is None
                and self._clock.now() - started > BOOT_PATIENCE_SECONDS
                and (self._mounted / "slurm.conf").is_file()
            ):
                self._log(f"taking the mounted copy of the configuration in {self._mounted} for now")
                self._offer(read_files(self._mounted))

    def _read_and_watch(self) -> None:
        found, version = self._kube.read_config_map(self._name)
        self._offer_object(found)
        for kind, changed in self._kube.watch_config_map(self._name, version):
            if kind == "DELETED":
                self._log(f"ConfigMap {self._name} was deleted; the configuration stays as it is")
            elif kind != "BOOKMARK":
                self._offer_object(changed)

    def _offer_object(self, config_map: Object) -> None:
        self._offer(dict(config_map.get("data") or {}))

    def _offer(self, files: dict[str, str]) -> None:
        version = config_hash(files)
        if version != self._last:
            self._last = version
            self._changes.put(files)


class MountedSource:
    """Puts the files of a directory into a queue, first as they are and then after every change."""

    def __init__(self, mounted: Path, changes: Changes, log: Callable[[str], None], clock: Clock | None = None) -> None:
        self._mounted = mounted
        self._changes = changes
        self._clock = clock or Clock()
        self._reminder = Reminder(log, self._clock)
        self._last: str | None = None

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
        elif (version := config_hash(files)) != self._last:
            self._last = version
            self._changes.put(files)


def start(source: ConfigMapSource | MountedSource) -> threading.Thread:
    """Run a source in the background."""
    thread = threading.Thread(target=source.run, daemon=True, name="config-source")
    thread.start()
    return thread
