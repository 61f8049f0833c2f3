"""Login nodes that follow their sessions: an apply leaves their number as it is, whoever has set it."""

from __future__ import annotations

from typing import Any

import pytest

from cli.kubectl.apply import Plan, plan
from config import load_config
from tests.fakes.kubectl import FakeCluster, thing
from tests.stacks import dev, with_change

OURS = {"manager": "slurmstack", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
OURS_WITHOUT = {"manager": "slurmstack", "operation": "Apply", "fieldsV1": {"f:spec": {"f:template": {}}}}
ITS_OWN = {
    "manager": "slurmstack-elastic", "operation": "Update", "subresource": "scale",
    "fieldsV1": {"f:spec": {"f:replicas": {}}},
}  # fmt: skip


POD = {"spec": {"containers": [{"name": "sshd", "image": "login:24.11"}]}}


def planned(size: Any, *owners: dict[str, Any]) -> Plan:
    """With four login nodes, whose number these have set."""
    login = thing("StatefulSet", "login", spec={"replicas": 4, "template": POD})
    login["metadata"]["managedFields"] = list(owners)
    kubectl = FakeCluster(items_there=[thing("Namespace", "slurm"), *([login] if owners else [])])
    sections = with_change(dev(), "login", {"size": size})
    return plan(kubectl, load_config(sections), sections, stack="test")


def replicas(found: Plan) -> int | None:
    (login,) = [item for item in found.objects if (item.kind, item.name) == ("StatefulSet", "login")]
    value: int | None = login.document["spec"].get("replicas")
    return value


@pytest.mark.parametrize(
    ("size", "owners", "sent"),
    [
        pytest.param({"max": 5}, (OURS,), 4, id="from the time with a fixed number"),
        pytest.param({"max": 5}, (OURS_WITHOUT, ITS_OWN), None, id="the program has set it since"),
        pytest.param({"max": 5}, (), None, id="they are not there yet"),
        *(pytest.param(3, owners, 3, id="a fixed number") for owners in ((), (OURS,), (OURS_WITHOUT, ITS_OWN))),
    ],
)
def test_the_number_stays_what_it_is_unless_it_is_fixed(
    size: Any, owners: tuple[dict[str, Any], ...], sent: int | None
) -> None:
    assert replicas(planned(size, *owners)) == sent
