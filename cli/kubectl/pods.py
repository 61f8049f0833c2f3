"""Pods as Kubernetes tells of them, and what is run in them: many questions to Slurm, a user's command in the jail."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cli.kubectl.client import ASK_SLURMDBD, Kubectl, component_of, in_controller, is_true
from slurm.names import JAIL_DIR
from slurm.rights import IN_JAIL

LEAVING = "Leaving"
"""Phase of a pod that was deleted and has not ended yet."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One pod."""

    name: str
    phase: str
    ready: bool
    restarts: int
    node: str
    component: str = ""
    """`controller`, `worker`, `login`, ...; empty if its labels say nothing."""


def pod_of(item: Mapping[str, Any]) -> Pod:
    """A pod as Kubernetes has it."""
    status = item.get("status", {})
    containers = status.get("containerStatuses", [])
    leaving = "deletionTimestamp" in item["metadata"]
    return Pod(
        name=item["metadata"]["name"],
        phase=LEAVING if leaving else status.get("phase", "Unknown"),
        # Where a machine is lost, what its kubelet has said of containers stays as it was.
        ready=is_true(item, "Ready") and bool(containers) and all(container["ready"] for container in containers),
        restarts=sum(container["restartCount"] for container in containers),
        node=item["spec"].get("nodeName", ""),
        component=component_of(item),
    )


def image_tags(items: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The tags, or the begin of the digests, of our images that pods run: several while they are replaced."""
    images = {
        container.get("image", "")
        for item in items
        for container in item["spec"].get("containers", [])
        if "slurmstack" in container.get("image", "")
    }
    return tuple(sorted({_tag(image) for image in images}))


def _tag(image: str) -> str:
    name, _, digest = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return tag or digest[:19] or "latest"


Answers = Mapping[str, tuple[int, str]]
"""Question -> exit status (124: no answer in its time) and what it has printed. One that was cut off is not there."""

DATABASE = "database"
"""Name of the question whether slurmdbd answers."""


def put(
    kubectl: Kubectl,
    namespace: str,
    first: Mapping[str, str],
    then: Mapping[str, str],
    *,
    seconds: float,
    each: float,
    slurmdbd: bool,
) -> tuple[Answers, subprocess.CompletedProcess[str]]:
    """Ask all questions, shell commands by their names, and return the answers with how the call itself has ended.

    `then` is asked only if the last one of `first` has succeeded: without slurmctld each would wait in vain. A
    question has `each` seconds, all together `seconds`; what has answered by then counts. `slurmdbd`: whether it is
    asked, too, beside the others, so that one that hangs costs them no time.
    """
    mark = secrets.token_hex(8)  # nobody's text is taken for the begin of an answer
    script = _script(mark, first, then, each=each, slurmdbd=slurmdbd)
    done = in_controller(kubectl, namespace, "timeout", f"{seconds:g}", "sh", "-c", script, seconds=seconds + 1)
    return _answers(done.stdout, mark), done


def _script(mark: str, first: Mapping[str, str], then: Mapping[str, str], *, each: float, slurmdbd: bool) -> str:
    """Prints `MARK question exit-status` and the answer for each."""
    begin = [f"ask {name} {shlex.quote(question)}" for name, question in first.items()]
    more = [f"ask {name} {shlex.quote(question)}" for name, question in then.items()]
    return "\n".join(
        [
            f"{ASK_SLURMDBD.replace('-k 1 5', f'-k 1 {each:g}')} & asked=$!" if slurmdbd else ":",
            f'ask() {{ out=$(timeout {each:g} sh -c "$2" 2>&3); code=$?',
            f"""printf '%s %s %s\\n%s\\n' {mark} "$1" $code "$out"; return $code; }} 3>/dev/null""",
            *begin[:-1],
            f"if {begin[-1]}; then",
            *more,
            ":; fi",
            f"wait $asked; echo {mark} {DATABASE} $?" if slurmdbd else ":",
            f"echo {mark} end 0",
        ]
    )


def _answers(printed: str, mark: str) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for piece in printed.split(f"{mark} ")[1:]:
        head, _, text = piece.partition("\n")
        name, _, code = head.partition(" ")
        if code.isdecimal():
            found[name] = (int(code), text.rstrip("\n"))
    if found and "end" not in found:
        found.popitem()
    return found


STATE_FILE = "/run/slurmstack/configuration.json"
"""Where the configuration agent writes what it knows (images/controller/agent.py)."""


def configuration_of(text: str) -> dict[str, Any]:
    """The configuration agent's state."""
    return dict(json.loads(text))


_NUMBERS: Final = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}  # fmt: skip
"""Of Linux (capability.h)."""

_ENTER: Final = """\
import ctypes, os, sys
root, kept, uid, gid, *argv = sys.argv[1:]
os.chroot(root or os.environ.get("JAIL") or "/")
os.chdir("/")
prctl = ctypes.CDLL(None, use_errno=True).prctl
for capability in set(range(64)) - set(map(int, kept.split(","))):
    if prctl(24, capability, 0, 0, 0) and ctypes.get_errno() != 22:
        sys.exit("the container's capabilities cannot be given up")
os.setgroups([int(gid)])
os.setgid(int(gid))
os.setuid(int(uid))
os.execv(argv[0], argv)
"""
"""24: PR_CAPBSET_DROP; 22: EINVAL, as this kernel has no such capability."""


def in_jail(uid: int, gid: int, *argv: str, root: str = JAIL_DIR) -> list[str]:
    """What to run in the container of sshd, as root, for a command of a user in the jail.

    `root`: empty for where jobs are in a container of slurmd or sshd, which is the jail if the pool has it.
    """
    kept = ",".join(str(_NUMBERS[name]) for name in IN_JAIL)
    return ["/usr/bin/python3", "-IS", "-c", _ENTER, root, kept, str(uid), str(gid), *argv]
