"""What `slurmstack chaos` looks for in pods is there."""

from __future__ import annotations

from cli.chaos.run import CONTAINERS
from cli.program.recording import Recording
from cli.program.values import reveal
from tests.recordings import pod_template


def test_each_main_process_is_in_the_container_that_is_named(full: Recording) -> None:
    found: dict[str, set[str]] = {}
    for item in full:
        template = pod_template(reveal(item.inputs)) if item.type.startswith("kubernetes:") else None
        if template:
            component = template["metadata"]["labels"]["app.kubernetes.io/component"]
            found.setdefault(component, set()).update(each["name"] for each in template["spec"]["containers"])
    assert {part: name for part, name in CONTAINERS.items() if name not in found.get(part, set())} == {}
