"""Whose pods are deleted by force: those of machines that are proven dead, and never of one that is merely silent."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from images.common.kubernetes import KubeError
from images.health.watch.lost import end_lost
from images.health.watch.machines import Machines, Place, machine_of
from tests.unit.images.health.watch.views import Followed

SHUTDOWN, OUT = "node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service"


def deleted(*taints: str, ready: str | None = "Unknown", really_gone: bool = True, synced: bool = True) -> list[str]:
    """What becomes of controller-0 on m-0; the pod on m-1 stays in any case. `ready`: None where there is no Node."""
    there = Followed({"controller-0": Place(node="m-0", uid="u"), "w-0": Place(node="m-1"), "waits": Place(node="")})
    silent = {
        "metadata": {"name": "m-0"},
        "spec": {"taints": [{"key": key} for key in taints]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    well = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    nodes = Followed({"m-1": machine_of(well), **({} if ready is None else {"m-0": machine_of(silent)})})
    there.synced = synced
    kube = Mock()
    if really_gone:
        kube.get.side_effect = KubeError("GET: 404", 404)
    end_lost(kube, Machines(pods=there, nodes=nodes), lambda _: None)
    assert all(call.args[1] == "u" and call.kwargs["force"] for call in kube.delete_pod.call_args_list)
    return [call.args[0] for call in kube.delete_pod.call_args_list]


@pytest.mark.parametrize("taint", [SHUTDOWN, OUT])
def test_somebody_vouches_for_it_by_a_taint(taint: str) -> None:
    assert deleted("node.kubernetes.io/unreachable", taint) == ["controller-0"]
    assert deleted(taint, ready="True") == [], "it runs again"


def test_kubernetes_has_no_such_node_any_more_by_a_question_of_now() -> None:
    assert deleted(ready=None) == ["controller-0"]
    assert deleted(ready=None, really_gone=False) == [], "it came after the copy was made"


def test_a_machine_that_is_silent_may_still_run() -> None:
    assert deleted("node.kubernetes.io/unreachable") == []


def test_nothing_is_done_by_an_old_copy_or_without_an_answer() -> None:
    assert deleted(SHUTDOWN, synced=False) == []
    kube = Mock()
    kube.get.side_effect = KubeError("no answer")
    with pytest.raises(KubeError):
        end_lost(kube, Machines(pods=Followed({"c": Place(node="m")}), nodes=Followed({})), lambda _: None)
    kube.delete_pod.assert_not_called()
