"""Many questions to Slurm in one call, in the controller's pod: each has its own exit status, none waits for long."""

from __future__ import annotations

import secrets
import shlex
import subprocess
from collections.abc import Mapping

from cli.kubectl.client import ASK_SLURMDBD, Kubectl, in_controller

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
