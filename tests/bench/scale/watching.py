"""What it costs that somebody looks at the nodes: 5,000 records of nodes, without a slurmd behind any of them.

Everything that looks at all nodes runs: the watcher and the tests of nodes (which start nothing here), and the
configuration agent, which removes dead records and keeps a topology.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from config import load_config
from slurm.conf import render
from slurm.sizing import node_conf
from tests.bench.row import Measuring
from tests.bench.scale.sandbox import LABELS, ask, labels, say_well, sections
from tests.slurm.kubernetes import KubernetesSandbox
from tests.slurm.pod import Pod
from tests.stacks import with_change

NODES = 5000
SECONDS = 60
CONF = "/var/spool/slurmctld/slurmstack/current/slurm.conf"

LOOKERS = ("config-agent", "health-watch", "health-tests")

_CALL = re.compile(r"^\s+(\S+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)


class RecordSandbox(KubernetesSandbox):
    """A controller that knows of many nodes."""

    def __init__(self, nodes: int) -> None:
        stack = with_change(sections(nodes), "topology", {"plugin": "tree", "labels": list(LABELS)})
        stack = with_change(stack, "accounting", {"enabled": False})
        # Nobody is behind the records: slurmctld would look up and ask each of them, and do little else.
        self.stack = with_change(stack, "slurm.settings", {**stack["slurm"]["settings"], "SlurmdTimeout": 0})
        self.nodes = nodes
        places = {f"machine-{number}": labels(number) for number in range(nodes)}
        super().__init__("24.11", config=render(load_config(self.stack)), workers=0, nodes=places)
        for number in range(nodes):
            self.place(f"default-{number}", f"machine-{number}")

    def start_controller_daemons(self, pod: Pod) -> None:
        """With records of all nodes, and what their checks say."""
        super().start_controller_daemons(pod)
        conf = node_conf("default", load_config(self.stack).worker_nodes["default"])
        names = f"default-[0-{self.nodes - 1}]"
        ask(self, f"scontrol create nodename={names} {conf} nodeaddr=127.0.0.1 state=cloud")
        say_well(self, self.nodes)


def watching(bench: Measuring, nodes: int = NODES) -> None:
    """Over a minute in which nothing happens."""
    bench.say(f"{nodes} records of nodes are made")
    with RecordSandbox(nodes) as sandbox:
        controller = sandbox.controller
        (controller.root / "run/tests.json").write_text('{"max_under_test": "0"}')
        controller.start_program("health-watch", {"SLURM_CONF": CONF, "MACHINES": "no", "MEASURE_NEW": "yes"})
        controller.start_program("health-tests", {"SLURM_CONF": CONF, "SETTINGS": "/run/tests.json"})
        time.sleep(SECONDS / 3)  # each begins with more than it does later
        found = [_minute(sandbox) for _ in range(bench.times(3))]
    name = "requests to slurmctld a minute by all that looks at nodes"
    bench.take(name, [one.calls for one in found], unit="", nodes=nodes, note=found[-1].by_call)
    bench.take("slurmctld: CPU seconds a minute for them", [one.slurmctld for one in found], nodes=nodes)
    bench.take("those who look: CPU seconds a minute", [one.lookers for one in found], nodes=nodes)


@dataclass(frozen=True, kw_only=True)
class _Minute:
    calls: float
    by_call: str
    slurmctld: float
    lookers: float


def _minute(sandbox: RecordSandbox) -> _Minute:
    calls, used, began = _calls(sandbox), _used(sandbox), time.monotonic()
    time.sleep(SECONDS)
    minutes, now = (time.monotonic() - began) / 60, _used(sandbox)
    assert all(now[name] > used[name] for name in used), f"not everybody has looked: {used}, {now}"
    rise = _calls(sandbox) - calls
    return _Minute(
        calls=rise.total() / minutes,
        by_call=", ".join(f"{count / minutes:.0f} {name}" for name, count in rise.most_common()),
        slurmctld=(now["slurmctld"] - used["slurmctld"]) / minutes,
        lookers=sum(now[name] - used[name] for name in LOOKERS) / minutes,
    )


def _calls(sandbox: RecordSandbox) -> Counter[str]:
    shown = ask(sandbox, "sdiag").partition("statistics by user")[0]
    return Counter({name: int(count) for name, count in _CALL.findall(shown)})


def _used(sandbox: RecordSandbox) -> dict[str, float]:
    """CPU seconds of our programs and of slurmctld, with all that they have started."""
    inside = Path(f"/proc/{sandbox.controller.pid}/ns/pid").readlink()
    used = dict.fromkeys(("slurmctld", *LOOKERS), 0.0)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/pid").readlink() != inside:
                continue
            command = (process / "cmdline").read_bytes().split(b"\0")
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended, and counts for who started it
        names = {Path(word.decode(errors="replace")).name for word in command[:4]}
        for name in names & used.keys():
            used[name] += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used
