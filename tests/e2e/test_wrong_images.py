"""Images that do not start: nothing runs with them, and a control plane that got them all the same comes back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from local import cluster, nodes
from local.images import ensure_images, image_store
from local.report import PlainReport
from slurm.images import DEFAULT_REGISTRY
from tests.e2e.harness import SlurmOnKubernetes, wait_until

NOWHERE = "127.0.0.1:1/slurm"
DOWN = ("controller-0", "slurmdbd-0", "database-0")


@pytest.fixture(params=["mistyped", "whose program exits"])
def images(request: pytest.FixtureRequest, tmp_path: Path, local_kubernetes: None) -> Iterator[dict[str, Any]]:
    """The section `images` of a stack file with a controller's image that does not start."""
    if request.param == "mistyped":
        yield {"registry": NOWHERE, "tag": "nonexistent-1"}
        return
    (tmp_path / "program").write_text("#!/bin/sh\necho a library is missing\nexit 127\n")
    text = "ARG BASE\nFROM ${BASE} AS broken\nCOPY --chmod=755 program /usr/sbin/slurmctld\n"
    (tmp_path / "Containerfile").write_text(text)
    built = ensure_images(PlainReport(), in_store=True)
    name, archive = f"{DEFAULT_REGISTRY}/controller:e2e-exits", tmp_path / "image.tar"
    with image_store(PlainReport()) as store:
        store.build(
            context=tmp_path, target="broken", base=built.reference("controller"), reference=name,
            arguments=(), volumes=(), on_line=lambda _: None,
        )  # fmt: skip
        store.save([name], archive, lambda _: None)
    setup = cluster._existing()
    for node in setup.nodes:
        nodes.ctr(setup, node, ["images", "import", str(archive)])
    yield {"tag": "e2e-exits"}
    for node in setup.nodes:
        nodes.ctr(setup, node, ["images", "remove", name])
    with image_store(PlainReport()) as store:
        store.remove([name])


def test_an_image_that_does_not_start_takes_nothing_away(two_nodes: SlurmOnKubernetes, images: dict[str, Any]) -> None:
    slurm = two_nodes
    if slurm.engine == "pulumi" and "registry" in images:
        pytest.skip("Pulumi's provider waits for a job's deadline, a quarter of an hour, while an image is pulled")
    before, uids = slurm.sections, slurm.pod_uids()
    job = slurm.submit("sleep 300")
    slurm.await_job(job, "RUNNING")
    slurm.sections = {**before, "images": images}
    failed = slurm.up(check=False)
    slurm.sections = before
    assert failed.returncode == 1, failed
    said = failed.stdout + failed.stderr
    told = (f"{NOWHERE}/controller", "a library is missing")
    assert any(word in said for word in told) or (slurm.engine == "pulumi" and "images-job" in said), said
    now = slurm.pod_uids()
    assert {name: now.get(name) for name in uids} == uids, "each pod is the one that it was"
    assert slurm.ssh("srun hostname").startswith("default-")
    slurm.up()
    assert slurm.preview()["changes"] == []
    assert slurm.job_state(job) == "RUNNING"
    slurm.slurm(f"scancel {job}")


def _waits_for_an_image(slurm: SlurmOnKubernetes, pod: str) -> bool:
    status = slurm.pods().get(pod, {}).get("status", {})
    found = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return any("Pull" in item["state"].get("waiting", {}).get("reason", "") for item in found)


def test_the_way_back_from_a_control_plane_that_does_not_start_needs_no_option(two_nodes: SlurmOnKubernetes) -> None:
    """As files of `slurmstack render` that were applied leave it: nothing tries images there."""
    slurm = two_nodes
    job = slurm.submit("sleep 300")
    slurm.await_job(job, "RUNNING")
    slurm.await_saved()
    sets = ("statefulset/controller", "statefulset/slurmdbd", "statefulset/database", "deployment/elastic")
    for name in sets:
        slurm.kubectl.run("set", "image", "-n", slurm.namespace, name, f"*={NOWHERE}/x:nonexistent-1")
    wait_until(lambda: all(map(partial(_waits_for_an_image, slurm), DOWN)), "nothing of the control plane runs")
    slurm.up()
    assert slurm.preview()["changes"] == []
    assert slurm.job_state(job) == "RUNNING"
    slurm.slurm(f"scancel {job}")
