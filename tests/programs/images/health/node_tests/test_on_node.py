"""The batch script, run for real with small commands in place of the tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from images.health.node_tests.slurm import SCRIPT
from tests.programs.waiting import wait_until

SAY = """#!/bin/sh
printf '%s\\n' "$@" >> "$SAID"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {"scontrol": SAY, "nvidia-smi": "#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {"PATH": f"{place}/bin:/usr/bin:/bin", "SAID": f"{place}/said", "SLURM_JOB_ID": "17"}


def spec(place: Path, *argv: str, **changes: Any) -> str:
    usual = {"argv": argv, "figures": {"figure": "figure: (.*)"}, "faults": "fault.*", "directory": str(place)}
    return json.dumps({**usual, **changes})


def comment(place: Path) -> dict[str, Any]:
    update, job, said = (place / "said").read_text().split("\n", 2)
    assert (update, job) == ("update", "jobid=17")
    text = said.rstrip("\n")
    assert text.startswith("comment=")
    told: dict[str, Any] = json.loads(text.removeprefix("comment="))
    return told


def run(place: Path, *argv: str, **changes: Any) -> dict[str, Any]:
    command = [sys.executable, "-I", str(SCRIPT), spec(place, *argv, **changes)]
    subprocess.run(command, env=environment(place), check=True, timeout=60)
    return comment(place)


def test_it_tells_what_was_looked_for_in_the_output(place: Path) -> None:
    said = run(place, "sh", "-c", 'echo noise; echo "figure:   hello"; echo more >&2; echo figure: 2; echo a fault 3')
    found = {"figures": {"figure": ["hello", "2"]}, "faults": ["fault 3"]}
    assert said == {"code": 0, "platform": "2x NVIDIA H200", **found}


def test_it_tells_the_end_of_an_output_in_which_nothing_matters(place: Path) -> None:
    said = run(place, "sh", "-c", "echo out of paper >&2; exit 3")
    assert (said["code"], said["figures"], said["end"]) == (3, {"figure": []}, "out of paper")


def test_it_knows_the_cpus_and_has_a_directory_that_is_gone_after_it(place: Path) -> None:
    left = place / f"slurmstack-health-{os.uname().nodename}-old"
    left.mkdir()
    script = 'touch "$1/file" && test "$(dirname "$1")" = "$2" && echo figure: $0'
    said = run(place, "sh", "-c", script, "{cpus}", "{scratch}", str(place))
    assert said["figures"] == {"figure": [str(len(os.sched_getaffinity(0)))]}
    assert sorted(path.name for path in place.iterdir()) == ["bin", "said"]


def lives(pid: int) -> bool:
    """Whether a process runs. One that has ended may wait for somebody to ask how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_it_ends_at_once_when_it_is_told_to_and_leaves_nothing(place: Path) -> None:
    argv = ("sh", "-c", "echo $$ > $0/pid; mv $0/pid $1; exec sleep 60", "{scratch}", str(place / "pid"))
    script = subprocess.Popen([sys.executable, "-I", str(SCRIPT), spec(place, *argv)], env=environment(place))
    while not (place / "pid").exists():
        assert script.poll() is None
        time.sleep(0.01)
    script.send_signal(signal.SIGTERM)
    assert script.wait(timeout=30) == 0
    wait_until(lambda: not lives(int((place / "pid").read_text())))
    assert sorted(path.name for path in place.iterdir()) == ["bin", "pid"], "no comment either"
