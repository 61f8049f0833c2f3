"""The node exporter: what its command line really gives."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from cli.program.values import reveal
from slurm.dashboards.boards import MACHINE_INFO, machine_figures
from tests import panels, stacks
from tests.programs.waiting import HANGS, wait_until
from tests.recordings import record
from tests.stacks import with_change


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes the user of the image")
def test_its_command_line_gives_each_figure_of_a_machine_that_a_dashboard_shows(
    node_exporter: str, promtool: str, tmp_path: Path
) -> None:
    """The real program with this machine's /proc and /sys, as the pod's user without a capability.

    Panels have data with it, and with exporters of others, which do not say the machine's name.
    """
    monitored = with_change(stacks.existing_full(), "monitoring", {"install": True, "nodes": True})
    (pods,) = [item for item in record(monitored, stack="prod") if item.name == "slurm-node-exporter-pods"]
    (container,) = reveal(pods.inputs)["spec"]["template"]["spec"]["containers"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = {
        "/machine/": "/", "/run/told": str(tmp_path), ":9100": f"127.0.0.1:{port}",
        "/usr/bin/prometheus-node-exporter": node_exporter,
    }  # fmt: skip
    command = [*container["command"], *container["args"]]
    for there, here in places.items():
        command = [word.replace(there, here) for word in command]
    of_pytest = [place for place in tmp_path.parents if place.name.startswith(("pytest-", "popen-"))]
    for place in (tmp_path, *of_pytest, *Path(node_exporter).parents[:3]):
        place.chmod(0o777 if place == tmp_path else 0o755)
    nobody = ["setpriv", "--reuid=954", "--regid=954", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    process = subprocess.Popen([*nobody, *command], env={"MACHINE": "node-a", "PATH": "/usr/bin:/bin"})
    try:
        text = read(port)
    finally:
        process.terminate()
        process.wait(timeout=30)
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert {name for name in machine_figures() if "infiniband" not in name} <= names
    assert f'{MACHINE_INFO}{{machine="node-a"}} 1' in text
    asked = panels.queries({*names, MACHINE_INFO})
    assert len(asked) == 4
    given = panels.series({"10.0.0.1:9100": text, "10.0.0.2:9100": text.replace("node-a", "node-b")})
    assert panels.empty(promtool, tmp_path, given, [f"({query}) and on (machine) {NAMED}" for query in asked]) == ""
    foreign = {name: value for name, value in given.items() if MACHINE_INFO not in name}
    assert panels.empty(promtool, tmp_path, foreign, asked) == ""


NAMED = 'label_replace(vector(1), "machine", "node-b", "", "")'
"""What has the name of the second machine."""


def read(port: int) -> str:
    found: list[str] = []

    def answers() -> list[str]:
        with contextlib.suppress(URLError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANGS) as answer:
            found.append(answer.read().decode())
        return found

    wait_until(answers)
    return found[0]
