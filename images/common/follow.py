"""A copy of objects of Kubernetes, kept up to date by a watch on the API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from images.common.kubernetes import Kube, KubeError, Object
from images.common.wait import Clock, Reminder

RETRY_SECONDS: Final = 5.0

Value = TypeVar("Value")


class Follower(Generic[Value]):
    """A copy of one kind of object, by name: what `extract` takes of each."""

    def __init__(
        self,
        kube: Kube,
        path: str,
        extract: Callable[[Object], Value],
        log: Callable[[str], None],
        *,
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        retry: float = RETRY_SECONDS,
        changed: Callable[[Mapping[str, Value]], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`changed` gets the copy when it is new and after each event; `retry`: seconds until the next try."""
        self._kube = kube
        self._path = path
        self._extract = extract
        self._log = log
        self._selector, self._fields, self._metadata_only = selector, fields, metadata_only
        self._retry = retry
        self._changed = changed
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._values: dict[str, Value] = {}
        self._version = ""
        """Where the last watch ended, if the next one may go on from there."""
        self.synced = False
        """Whether the API server has told all, and still answers: an old copy proves nothing."""

    def values(self) -> dict[str, Value]:
        """The latest copy; after a failure the last one that could be had."""
        with self._lock:
            return dict(self._values)

    def start(self) -> None:
        """Follow in the background."""
        threading.Thread(target=self.run, daemon=True, name=self._path).start()

    def run(self) -> None:
        """Follow for ever."""
        reminder = Reminder(self._log, self._clock)
        forgotten = False
        while True:
            try:
                self.follow_once()
                reminder, forgotten = Reminder(self._log, self._clock), False
            except (KubeError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
                if isinstance(error, KubeError) and error.status == 410 and not forgotten:
                    forgotten = True  # read all again at once; but not over and over
                    continue
                self.synced = False
                reminder.waiting(f"{self._path} of the API server: {error}")
                self._clock.sleep(self._retry)
            except BaseException:
                self.synced = False  # nobody follows any more
                raise

    def follow_once(self) -> None:
        """Watch until the server ends the watch: from where the last one ended, or else after reading all.

        To read all again each few minutes would be most of what thousands of nodes cost the API server.
        """
        version, self._version = self._version, ""
        if not version:
            items, version = self._kube.list_all(
                self._path, selector=self._selector, fields=self._fields, metadata_only=self._metadata_only
            )
            with self._lock:
                self._values = {item["metadata"]["name"]: self._extract(item) for item in items}
            self.synced = True
            self._tell()
        events = self._kube.watch(
            self._path, version, selector=self._selector, fields=self._fields, metadata_only=self._metadata_only
        )
        try:
            for kind, item in events:
                self._take(kind, item)
                version = str(item["metadata"]["resourceVersion"])
        except KubeError as error:
            if error.may_resume:
                self._version = version
            raise
        self._version = version

    def _take(self, kind: str, item: Object) -> None:
        """One event. Any of them shows that the server is there again."""
        self.synced = True
        if kind == "BOOKMARK":
            return
        name = item["metadata"]["name"]
        with self._lock:
            if kind == "DELETED":
                self._values.pop(name, None)
            else:
                self._values[name] = self._extract(item)
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed(self.values())
