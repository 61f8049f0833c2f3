"""A stream of small jobs, which a user submits from a login node; each leaves a mark when it runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from cli.chaos.verdict import Mark, Submitted, marks_in
from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint
from cli.kubectl.pods import LEAVING, in_jail, pod_of
from cli.stack import Stack
from slurm.names import LOGIN

PATIENCE: Final = 20
"""Seconds for one submission; sbatch alone would try for minutes."""

_TOGETHER: Final = 3
"""Submissions by one `kubectl exec`, which takes as long as they do."""

_LONGEST: Final = 3
"""Seconds that a job sleeps at most."""

_MOST_LISTED: Final = 20_000_000
"""Bytes of the list of marks that are read: the directory is the user's."""


class Jail:
    """Commands of a user in the jail of a login node, whichever takes sessions."""

    def __init__(self, kubectl: Kubectl, stack: Stack, user: str) -> None:
        self._kubectl = kubectl
        self._namespace = stack.config.cluster.namespace
        account = stack.config.users[user]
        self._who = f"{account.uid}:{account.uid if account.gid is None else account.gid}"
        self._environment = (f"HOME=/home/{user}", f"USER={user}", "PATH=/usr/local/bin:/usr/bin:/bin")
        self._node = ""

    def run(self, command: str, *, seconds: float = 60) -> tuple[int, str, str]:
        """Exit status, output and complaint of a line of shell; another node the next time where it fails."""
        node = self._node or self._find()
        if not node:
            return 1, "", "no login node takes sessions"
        words = in_jail(self._who, "/usr/bin/env", "-i", *self._environment, "/bin/sh", "-c", f"cd && {command}")
        place = ("exec", "-n", self._namespace, node, "-c", "sshd", "--")
        done = self._kubectl.run(*place, *words, check=False, seconds=seconds)
        self._node = node if done.returncode == 0 else ""
        return done.returncode, done.stdout, complaint(done) if done.returncode else ""

    def _find(self) -> str:
        try:
            found = self._kubectl.items("pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={LOGIN}")
        except Failure:
            return ""
        return next((pod.name for pod in map(pod_of, found) if pod.ready and pod.phase != LEAVING), "")


class Stream:
    """Submits until it is stopped; what nobody answered is remembered too."""

    def __init__(self, jail: Jail, *, token: str, seed: int, rate: float, options: Sequence[str] = ()) -> None:
        """`rate`: jobs in a second at most. `options`: of sbatch."""
        self.prefix = f"chaos-{token}-"
        self.submitted = Submitted()
        self._directory = f".slurmstack-chaos-{token}"
        self._jail = jail
        self._rate = rate
        self._options = " ".join(options)
        self._chance = random.Random(seed)  # noqa: S311  it is to be repeated
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._begun = 0.0

    def begin(self) -> None:
        """Submit one job, to see whether that works at all, and then more beside what else is done. Raises Failure."""
        code, _, said = self._jail.run(f"mkdir -m 700 {self._directory}")
        if code != 0:
            raise Failure(f"the user cannot make a directory for marks: {said}")
        self._begun = time.monotonic()
        said = self._submit([0])
        if 0 not in self.submitted.accepted:
            raise Failure(f"no job is accepted before anything was broken: {said}")
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Since the begin."""
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """No more jobs."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _go(self) -> None:
        number = 1
        while not self._over.is_set():
            before = time.monotonic()
            self._submit(range(number, number + _TOGETHER))
            number += _TOGETHER
            self._over.wait(max(0.0, _TOGETHER / self._rate - (time.monotonic() - before)))

    def _submit(self, numbers: Sequence[int]) -> str:
        self.submitted.unknown.update(numbers)
        lines = [f"job=$({self._sbatch(number)}) && echo {number} $job" for number in numbers]
        _, printed, said = self._jail.run("; ".join(lines), seconds=len(lines) * (PATIENCE + 2) + 5)
        for line in printed.splitlines():
            number, _, job = line.partition(" ")
            if number.isdigit() and job.isdigit() and int(number) in self.submitted.unknown:
                self.submitted.unknown.discard(int(number))
                self.submitted.accepted[int(number)] = int(job)
                self.submitted.times[int(number)] = self.seconds
        return said

    def _sbatch(self, number: int) -> str:
        mark = f"$HOME/{self._directory}/m.{number}.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.XXXXXX"
        script = f"f=$(mktemp {mark}) && sleep {self._chance.uniform(0, _LONGEST):.1f} && echo end >$f"
        what = f"--parsable --job-name={self.prefix}{number} --requeue --ntasks=1 --time=5 --mem=16 --output=/dev/null"
        return f"timeout -k 1 {PATIENCE} sbatch {what} {self._options} --wrap '{script}'"

    def marks(self) -> list[Mark]:
        """What jobs have left. Raises Failure where it cannot be read for a minute."""
        until = time.monotonic() + 60
        while True:
            found = f"find {self._directory} -maxdepth 1 -name 'm.*' -printf '%f %s\\n' | head -c {_MOST_LISTED}"
            code, printed, said = self._jail.run(found)
            if code == 0:
                return marks_in(printed)
            if time.monotonic() > until:
                raise Failure(f"the jobs' marks cannot be read: {said}")
            time.sleep(1)

    def clean(self) -> None:
        """Remove the marks."""
        self._jail.run(f"rm -rf {self._directory}")
