"""What leaves the stack leaves the cluster, of whatever kind it is; what a `destroy` left behind stops no `up`."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.change.apply import apply
from cli.change.change import Change
from cli.change.plan import Plan, preview
from cli.errors import Failure
from cli.program.generated import KeptValues
from cli.program.manifests import Manifest
from tests.fakes.kubectl import PlayedKubectl, UpLock

KINDS = "applyset.kubernetes.io/contains-group-kinds"

NAMESPACE = {"kind": "Namespace", "metadata": {"name": "slurm"}}

NOT_SERVED = {
    "get": 'error: the server doesn\'t have a resource type "Certificate"',
    "apply": "error: listing cert-manager.io/v1, Kind=Certificate objects for pruning: "
    "the server could not find the requested resource",
}
"""kubectl's words once cert-manager has been removed with its kinds."""


@dataclass(frozen=True, kw_only=True)
class Cluster(PlayedKubectl):
    """A cluster with an apply set, and the kinds that it knows."""

    served: tuple[str, ...] = ("ConfigMap", "PodDisruptionBudget.policy", "Certificate.cert-manager.io")
    annotations: dict[str, str] = field(
        default_factory=lambda: {KINDS: "Certificate.cert-manager.io,ConfigMap,PodDisruptionBudget.policy"}
    )
    calls: list[tuple[str, ...]] = field(default_factory=list)
    broken: str = ""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del stdin
        self.calls.append(arguments)
        output, error = self._answer(arguments)
        if error and check:
            raise Failure(error)
        return subprocess.CompletedProcess(arguments, 1 if error else 0, json.dumps(output), error)

    def _answer(self, arguments: tuple[str, ...]) -> tuple[Any, str]:
        if self.broken:
            return {}, self.broken
        match arguments:
            case ("get", "--ignore-not-found", "secret", *_):
                return {"metadata": {"annotations": self.annotations}}, ""
            case ("get", "--ignore-not-found", kinds, *_) | ("get", kinds, *_) if kinds[0].isupper():
                if set(kinds.split(",")) - {*self.served}:
                    return {}, NOT_SERVED["get"]
                items = [{"kind": kind.partition(".")[0], "metadata": {"name": "rest"}} for kind in kinds.split(",")]
                return {"items": items}, ""
            case ("annotate", *_, change):
                self.annotations[KINDS] = change.partition("=")[2]
            case ("apply", *words) if "--prune" in words and set(self.annotations[KINDS].split(",")) - {*self.served}:
                return {}, NOT_SERVED["apply"]
        return {"items": []}, ""


def planned(*objects: dict[str, Any], live: dict[tuple[str, str], Any] | None = None) -> Plan:
    present: dict[tuple[str, str], Any] = {("Namespace", "slurm"): NAMESPACE, **(live or {})}
    manifests = tuple(Manifest(urn="", document=document) for document in objects)
    return Plan(
        namespace="slurm", objects=manifests, kept=KeptValues({}), live=present, inside={}, outside=(), effects=()
    )


def deleted(found: list[Change]) -> set[str]:
    return {f"{change.kind} {change.name}" for change in found if change.action == "delete"}


def test_whatever_kind_leaves_the_stack_is_shown() -> None:
    assert deleted(preview(Cluster(), planned())) == {"ConfigMap rest", "PodDisruptionBudget rest", "Certificate rest"}


def test_a_kind_that_the_cluster_no_longer_knows_stops_neither_preview_nor_apply() -> None:
    without = Cluster(served=("ConfigMap", "PodDisruptionBudget.policy"))
    assert deleted(preview(without, planned())) == {"ConfigMap rest", "PodDisruptionBudget rest"}
    apply(without, planned(NAMESPACE), UpLock(without))
    assert without.annotations[KINDS] == "ConfigMap,PodDisruptionBudget.policy"
    assert [call[0] for call in without.calls if "--prune" in call] == ["apply", "apply"]


@pytest.mark.parametrize(
    ("troubled", "told"),
    [(Cluster(served=()), "does not tell what it serves"), (Cluster(broken="error: no rights"), "no rights")],
    ids=["it tells no kinds at all", "another complaint"],
)
def test_trouble_of_the_api_server_is_passed_on_and_makes_no_kind_be_forgotten(troubled: Cluster, told: str) -> None:
    before = dict(troubled.annotations)
    with pytest.raises(Failure, match=told):
        preview(troubled, planned())
    with pytest.raises(Failure, match=told):
        apply(troubled, planned(NAMESPACE), UpLock(troubled))
    assert troubled.annotations == before


def test_a_volume_whose_claim_went_with_its_namespace_can_be_claimed_again() -> None:
    volumes = [{"kind": "PersistentVolume", "metadata": {"name": name}} for name in ("slurm-jail", "slurm-state")]
    phases = {("PersistentVolume", "slurm-jail"): "Released", ("PersistentVolume", "slurm-state"): "Bound"}
    cluster = Cluster()
    apply(
        cluster,
        planned(*volumes, live={at: {"status": {"phase": phase}} for at, phase in phases.items()}),
        UpLock(cluster),
    )
    (patch,) = [call for call in cluster.calls if call[0] == "patch"]
    assert patch[2] == "slurm-jail"
    assert json.loads(patch[-1]) == [{"op": "remove", "path": "/spec/claimRef/uid"}]
