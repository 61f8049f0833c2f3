"""Workers that cannot be made, placed, started or used, beside two that are well: doctor names what ails each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e import ill_workers
from tests.e2e.asking_doctor import doctor, first
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.ill_workers import ILL


@pytest.fixture
def with_ill_workers(two_nodes: SlurmOnKubernetes) -> Iterator[SlurmOnKubernetes]:
    slurm = two_nodes
    ill_workers.apply(slurm, ill_workers.claim())
    ill_workers.start(slurm, {name: change for name, (change, _) in ILL.items()})
    try:
        yield slurm
    finally:
        ill_workers.remove(slurm, ILL)
        slurm.kubectl.run("delete", "pvc", ill_workers.CLAIM, "-n", slurm.namespace)
    wait_until(lambda: not doctor(slurm)[0]["findings"], f"nothing is found: {doctor(slurm)}")


def test_a_worker_is_told_what_ails_it_alone_and_among_others(with_ill_workers: SlurmOnKubernetes) -> None:
    slurm = with_ill_workers
    found: dict[str, str] = {}

    def all_told() -> bool:
        """Some go on failing in turns: each has to be seen once."""
        said = [item["cause"] for item in doctor(slurm)[0]["findings"]]
        for name, (_, cause) in ILL.items():
            found.update({name: text for text in said if re.fullmatch(cause, text)})
        return set(found) == set(ILL)

    try:
        wait_until(all_told, "all are told", timeout=90, slowest=2)
    except AssertionError:
        pytest.fail(f"not told: {set(ILL) - set(found)}")
    causes = [item["cause"] for item in doctor(slurm)[0]["findings"]]
    assert {f"the cluster has a pool {name} that is not in the stack file" for name in ILL} <= set(causes)
    for name in ("claim", "secret", "small"):
        said = first(slurm, "node", f"{name}-0")["cause"]
        assert re.fullmatch(ILL[name][1], said), said
