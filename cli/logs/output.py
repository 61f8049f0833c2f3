"""Errors in a job's output: what Slurm's commands, slurmstepd and the script's shell wrote there, and no daemon knows.

So it is with an interpreter or a program that is not there, and with a step for which the job has no room.
"""

from __future__ import annotations

import re

from cli.kubectl.client import Kubectl, complaint, in_controller
from cli.kubectl.pods import in_jail
from cli.status.snapshot import KnownJob
from cli.text import brief
from images.common.slurm_runs import DELIMITER, sacct
from slurm.names import LOGIN

_FIELDS = ("UID", "GID", "StdErr", "StdOut")
_ERROR = re.compile(r"(?m)^(?:(?:(?:srun|sbatch|salloc|slurmstepd\S*):|\[[\d:.T-]+\]) error|env|\S+/slurm_script): .+")
"""slurmstepd of 26.05 writes the time in place of its name."""
_TAIL = ("/usr/bin/env", "-i", "/usr/bin/timeout", "3", "/usr/bin/tail", "-c", "100000", "--")
_LISTED = 6
_SECONDS = 5
"""For each question: an answer waits for it."""


def errors_in_output(kubectl: Kubectl, namespace: str, known: KnownJob) -> tuple[str, ...]:
    """The first ones of a job that ended with an exit status, each after the name of the file; or where its output is.

    The file is read as the user, as its name may be that of a link to anything; so not at all of a job of root.
    """
    run = known.last
    if run is None or run["ExitCode"].startswith("0:"):
        return ()
    batch = f"{run['JobIDRaw']}.batch"
    node = next((step["NodeList"] for step in reversed(known.runs) if step["JobIDRaw"] == batch), "")
    asked = [*sacct(_FIELDS), "--allocations", "--expand-patterns", f"--jobs={run['JobID']}"]
    answer = in_controller(kubectl, namespace, *asked, seconds=_SECONDS).stdout.partition("\n")[0].split(DELIMITER)
    path = (answer[2] or answer[3]) if len(answer) == len(_FIELDS) else ""  # a part of it, if it has line breaks
    if not node or not path or int(answer[0]) == 0:
        return ()
    # Nodes of elastic pools go; where there is a jail, login nodes have the same files.
    for pod, container in ((node, "slurmd"), (f"service/{LOGIN}", "sshd")):
        command = in_jail(int(answer[0]), int(answer[1]), *_TAIL, path, root="")
        where = ("exec", "-n", namespace, pod, "-c", container, "--")
        done = kubectl.run(*where, *command, check=False, seconds=_SECONDS)
        if done.returncode == 0:
            errors = tuple(dict.fromkeys(f"{path}: {text}" for text in _ERROR.findall(done.stdout)))
            return errors[:_LISTED] or (f"its output is in {path}",)
    return (f"its output could not be read: {brief(complaint(done))}",)
