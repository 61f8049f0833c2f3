"""The scene of the attacks: who is there, and how alice's attempts are run, all in one shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.security.attempts import ATTEMPTS, Attempt, Where

Shell = Callable[[str, str], str]
"""What a command prints that a user runs on the login node, in the jail: `shell("alice", "id")`. It has to succeed."""

NODE: Final = "default-0"
SIDE_BY_SIDE: Final = 4
SECONDS_EACH: Final = 20

_BOB_AT_LOGIN: Final = """
echo secret > note; chmod 600 note; touch /tmp/of-bob /dev/shm/of-bob
SECRET=secret setsid sleep 900 < /dev/null > /dev/null 2>&1 &
"""
_BOB_JOB: Final = f"""
sbatch --parsable --output=/dev/null -n1 -w {NODE} <<'END'
#!/bin/bash
touch /tmp/of-bob /dev/shm/of-bob
sleep 900
END
"""
_RUN_ONE: Final = r"""
number=$1 how=$2
if [ "$how" = sudo ]; then
    said=$(timeout SECONDS sudo -n BOB_JOB=$BOB_JOB BOB_PID=$BOB_PID bash attempt-$number 2>&1 < /dev/null)
else
    said=$(timeout SECONDS bash attempt-$number 2>&1 < /dev/null)
fi
printf '== %s %s\n%s\n' "$number" "$?" "$said" > said-$number
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Alice and bob on a login node and on one worker."""

    shell: Shell
    bob_job: str
    in_kubernetes: bool = False

    def attack(self, where: Where) -> list[str]:
        """Run all attempts there; what got through, or was refused by something that was not expected."""
        attempts = [
            attempt for attempt in ATTEMPTS if where in attempt.where and attempt.in_kubernetes <= self.in_kubernetes
        ]
        script = attack_script(attempts, self.bob_job)
        start = "bash attack" if where == "login" else f"srun -Q -n1 -w {NODE} bash attack"
        printed = self.shell("alice", f"cat > attack <<'END-OF-ATTACK'\n{script}\nEND-OF-ATTACK\n{start}")
        return judge(attempts, printed)


def set_scene(shell: Shell, *, in_kubernetes: bool = False) -> Scene:
    """Let bob be there; returns when his job runs."""
    shell("bob", _BOB_AT_LOGIN)
    job = shell("bob", _BOB_JOB).strip()
    looks = f"srun -Q --jobid={job} --overlap test -e /dev/shm/of-bob"
    shell("bob", f"for i in $(seq 100); do {looks} 2> /dev/null && exit 0; sleep 0.1; done; exit 1")
    return Scene(shell=shell, bob_job=job, in_kubernetes=in_kubernetes)


def attack_script(attempts: Sequence[Attempt], bob_job: str) -> str:
    """A shell script that runs the attempts and says how each ended."""
    files = [
        f"cat > attempt-{number} <<'END-OF-ATTEMPT'\n{attempt.command}\nEND-OF-ATTEMPT"
        for number, attempt in enumerate(attempts)
    ]
    numbers = "\n".join(f"{number} {'sudo' if one.sudo else 'alice'}" for number, one in enumerate(attempts))
    run_one = _RUN_ONE.replace("SECONDS", str(SECONDS_EACH)).strip()
    return "\n".join(
        (
            "directory=$(mktemp -d) && cd $directory || exit",
            f"export BOB_JOB={bob_job} BOB_PID=$(pgrep -o -u bob -x sleep)",
            '[ -n "$BOB_PID" ] || { echo "bob is not here"; exit 1; }',
            *files,
            f"cat > run-one <<'END-OF-RUN'\n{run_one}\nEND-OF-RUN",
            f"xargs -P {SIDE_BY_SIDE} -L 1 bash run-one <<'END-OF-NUMBERS'\n{numbers}\nEND-OF-NUMBERS",
            "cat said-*; cd /; rm -rf $directory",
        )
    )


def judge(attempts: Sequence[Attempt], printed: str) -> list[str]:
    """What is wrong, a line for each attempt that was not refused as it should be."""
    said: dict[int, tuple[int, str]] = {}
    for part in re.split(r"^== ", printed, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        number, code = (int(word) for word in head.split())
        said[number] = (code, text.strip())
    wrong = []
    for number, attempt in enumerate(attempts):
        code, text = said.get(number, (-1, printed[:500]))
        if code == 0:
            wrong.append(f"got through: {attempt.name}: {text}")
        elif not re.search(attempt.refusal, text):
            wrong.append(f"refused by something else ({code}): {attempt.name}: {text}")
    return wrong
