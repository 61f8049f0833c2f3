"""What the sandbox itself promises to the tests in it."""

from __future__ import annotations

import json
import subprocess

from tests.slurm.cluster import ClusterFactory


def test_a_pod_that_comes_or_goes_does_not_change_the_way_to_the_controller(
    own_cluster: ClusterFactory,
) -> None:
    """With an address that followed its ports, the bridge was lost to the other pods for up to half a minute."""
    sandbox = own_cluster(workers=0)

    def addresses() -> set[str]:
        inside = ["nsenter", f"--target={sandbox.controller.pid}", "--net", "ip", "-j", "link", "show", "br0"]
        (link,) = json.loads(subprocess.run(inside, capture_output=True, text=True, check=True).stdout)
        return {link["address"]}

    seen = addresses()
    for number in range(6):
        sandbox.add_pod(f"other-{number}", "login", munged=False)
        seen |= addresses()
    sandbox.remove_pod("other-0")
    seen |= addresses()

    assert len(seen) == 1
