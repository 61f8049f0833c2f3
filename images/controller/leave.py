"""leave: the end of slurmctld, as the preStop hook of its container.

An ordinary end (a restart, an update, an eviction) is not held up. When the whole cluster goes, slurmctld stays until
the last worker has left: workers wait for their jobs, and need slurmctld to leave.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from images.common.command import Runner, run
from images.common.kubernetes import Kube, KubeError, Object, own_namespace
from images.common.log import Log, open_pod_log
from images.common.wait import Clock, Reminder

STATEFUL_SET: Final = "controller"

POLL_SECONDS: Final = 1.0

SETTLE_SECONDS: Final = 15.0
"""How long a worker may look as if it stayed. Who deletes a cluster deletes the controller and the pools at the same
moment, and Kubernetes takes a while to come from a pool to its pods."""

SILENCE_SECONDS: Final = 30.0
"""How long the API may refuse to answer: our rights may go before our pod does. Workers without slurmctld still wait
for their jobs, as long as they can see them."""

KILL_SECONDS: Final = 30
"""From SIGTERM to SIGKILL for slurmctld. The pod's own grace period is for the workers' jobs, and may be days."""


UNKNOWN: Final = "the API server does not say more"

Value = TypeVar("Value")


class Leaving:
    """Holds slurmctld up as long as workers need it."""

    def __init__(
        self, api: Kube, log: Callable[[str], None], *, runner: Runner = run, clock: Clock | None = None
    ) -> None:
        self._api, self._log, self._runner, self._clock = api, log, runner, clock or Clock()
        self._reminder = Reminder(log, self._clock)

    def run(self) -> str:
        """Return when slurmctld may end, with the reason."""
        goes = self._answer(self._cluster_goes)
        if not goes:
            return UNKNOWN if goes is None else "the cluster stays"
        started = self._clock.now()
        while pods := self._answer(self._api.list_workers):
            if self._clock.now() - started >= SETTLE_SECONDS and not any(map(_is_deleted, pods)):
                return "the workers that are there stay"
            self._reminder.waiting(self._who(pods))
            self._clock.sleep(POLL_SECONDS)
        return UNKNOWN if pods is None else "all workers have left"

    def _answer(self, question: Callable[[], Value]) -> Value | None:
        """The answer, or None if the API server gives none for `SILENCE_SECONDS`: it may be busy or start anew."""
        started = self._clock.now()
        while True:
            try:
                return question()
            except KubeError as error:  # rights may go before the workers, too
                if self._clock.now() - started >= SILENCE_SECONDS:
                    self._log(f"not waited for any longer: {error}")
                    return None
                self._reminder.waiting(f"the API server: {error}")
            self._clock.sleep(POLL_SECONDS)

    def _cluster_goes(self) -> bool:
        sets = {item["metadata"]["name"]: item for item in self._api.list_stateful_sets()}
        if STATEFUL_SET not in sets or _is_deleted(sets[STATEFUL_SET]):
            return True
        return _is_deleted(self._api.get_namespace())

    def _who(self, pods: Sequence[Object]) -> str:
        names = sorted(str(pod["metadata"]["name"]) for pod in pods)
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        queue = self._runner(["squeue", "--noheader", "--states=running,suspended,completing", "--format=%A"]).stdout
        return f"{len(names)} workers to leave ({listed}), with {len(queue.split())} running jobs"


def _is_deleted(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def end_from_now_on() -> None:
    """Tell slurmctld each second that it is to end, and kill one that hangs. All of it ends with the container.

    kubelet tells it once. A slurmctld that is reading its configuration anew (`scontrol reconfigure`, which the config
    agent may do in that moment) replaces its own program, which has not heard it. It would serve until it is killed,
    and jobs of its last seconds, which it has not saved, would be lost.
    """
    rounds = f"for _ in $(seq {KILL_SECONDS}); do sleep 1; pkill -TERM -x slurmctld; done"
    none = subprocess.DEVNULL
    command = ["/bin/sh", "-c", f"{rounds}; pkill -KILL -x slurmctld"]
    subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)


def main() -> int:
    """Entry point."""
    log = Log("leave", open_pod_log())
    try:
        kube = Kube.in_cluster(own_namespace())
        if kube is not None:
            log(f"slurmctld may end: {Leaving(kube, log).run()}")
    finally:
        end_from_now_on()
    return 0
