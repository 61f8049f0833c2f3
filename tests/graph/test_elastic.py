"""What the program registers for a pool whose nodes Slurm starts and ends."""

from __future__ import annotations

from typing import Any

from cli.change.change import compare, of_recording
from cli.program.recording import Recording
from images.common.slurm_node import NodeConf
from images.elastic.nodes import SETTINGS, SUBDOMAIN, TEMPLATE, Pool, pool_of
from images.elastic.program import PORT
from slurm.names import ELASTIC_PORT, ELASTIC_SETTINGS, ELASTIC_TEMPLATE, NODES_SERVICE
from tests.graph import objects as graph
from tests.graph.objects import ELASTIC, environment, inputs, objects, pod


def recorded(size: Any, **more: Any) -> Recording:
    pool = {f"worker_nodes__gpu__{path}": value for path, value in more.items()}
    return graph.recorded(worker_nodes__gpu__size=size, **pool)


def slurm_conf(recording: Recording) -> list[str]:
    return str(inputs(recording, "slurm-configuration-files")["data"]["slurm.conf"]).splitlines()


def pool_in(recording: Recording) -> Pool:
    pool = pool_of(objects(recording, "PodTemplate")["gpu"])
    assert pool is not None
    return pool


def test_it_is_a_template_of_the_very_pod_that_a_fixed_pool_has_and_says_so() -> None:
    fixed, elastic = recorded(2), recorded(ELASTIC)
    template = objects(elastic, "PodTemplate")["gpu"]["template"]
    env = template["spec"]["containers"][0]["env"]
    env.remove({"name": "ELASTIC", "value": pool_in(elastic).mark})
    assert template == objects(fixed, "StatefulSet")["gpu"]["spec"]["template"]
    for kind in ("StatefulSet", "Service", "Secret"):
        before, after = objects(fixed, kind), objects(elastic, kind)
        same = before.keys() - {"gpu", "elastic"}
        assert {name: before[name] for name in same} == {name: after[name] for name in same}, "others are as they were"
    assert "gpu" not in objects(elastic, "StatefulSet")


def test_the_program_reads_of_the_template_what_the_stack_file_says() -> None:
    elastic = recorded(ELASTIC)
    pool = pool_in(elastic)
    assert (pool.name, pool.least, pool.most) == ("gpu", 1, 64)
    conf = environment(pod(elastic, "slurm-pool-gpu-template")["containers"][0])["NODE_CONF"]
    said = NodeConf.parse(conf).text.replace(" TmpDisk=102400", "")  # of the machine's disk, when it is there
    assert pool.conf == f"{said} Weight=1000"
    assert (SETTINGS, TEMPLATE, SUBDOMAIN, PORT) == (ELASTIC_SETTINGS, ELASTIC_TEMPLATE, NODES_SERVICE, ELASTIC_PORT)


def rights(recording: Recording) -> dict[str, list[str]]:
    rules = objects(recording, "Role")["elastic"]["rules"]
    assert not [rule for rule in rules if rule.get("resourceNames")]
    return {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}


def test_who_may_make_pods_is_in_a_pod_of_its_own_and_may_nothing_else() -> None:
    elastic = recorded(ELASTIC)
    assert rights(elastic) == {
        "pods": ["list", "watch", "delete", "create"],
        "statefulsets": ["list", "watch"],
        "podtemplates": ["list", "watch"],
    }
    makers = [
        name
        for name, item in objects(elastic, "Role").items()
        if any("pods" in rule["resources"] and "create" in rule["verbs"] for rule in item["rules"])
    ]
    assert makers == ["elastic"]
    (subject,) = objects(elastic, "RoleBinding")["elastic"]["subjects"]
    assert subject["name"] == pod(elastic, "slurm-elastic-pods")["serviceAccountName"]


POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
EVERY_KIND_OF_VOLUME = {
    "resources__gpus": {"count": 8, "job_files": True},
    "scratch": {"size": "1Ti", "host_path": "/mnt/nvme"},
}


def test_the_api_server_is_told_which_pods_it_may_make_before_the_template_says_so() -> None:
    """That it is held to them: tests/e2e/test_elastic.py."""
    elastic = recorded(ELASTIC, **EVERY_KIND_OF_VOLUME)
    policies, bindings = (objects(elastic, kind) for kind in POLICIES)
    assert policies.keys() == bindings.keys() == {"slurm-elastic", "slurm-elastic.gpu"}
    for name, binding in bindings.items():
        here = {"kubernetes.io/metadata.name": "slurm"}
        assert binding["spec"]["matchResources"] == {"namespaceSelector": {"matchLabels": here}}
        assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (name, ["Deny"])
    (wanted,) = policies["slurm-elastic.gpu"]["spec"]["variables"]
    told = eval(wanted["expression"], {"dyn": lambda value: value, "true": True, "false": False})
    template = objects(elastic, "PodTemplate")["gpu"]["template"]
    assert {kind: told.pop(kind) for kind in template["metadata"]} == template["metadata"]
    assert told.pop("serviceAccountName") == "default"
    spec = template["spec"]
    for volume in spec["volumes"]:  # which the API server adds
        volume.get("configMap", {})["defaultMode"] = 0o644
    (pod_name,) = [one for one in spec["containers"][0]["env"] if one["name"] == "POD_NAME"]
    pod_name["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    assert told == spec | {"containers": [*spec["initContainers"], *spec["containers"]]}

    known = {item.name: item for item in elastic}
    assert known["slurm-pool-gpu-binding"].urn in known["slurm-pool-gpu-template"].dependencies
    for name in ("slurm-pool-gpu-policy", "slurm-pool-gpu-template"):
        assert known["slurm-images-job"].urn in known[name].dependencies, "it would be refused until that has ended"


def test_no_policy_is_made_where_none_is_wanted_or_needed() -> None:
    off = graph.recorded(worker_nodes__gpu__size=ELASTIC, cluster={"admission_policy": False})
    for recording in (off, recorded(2)):
        assert not [name for kind in POLICIES for name in objects(recording, kind)]


def changed_kinds(before: Any, after: Any) -> set[str]:
    changes = compare(of_recording(recorded(before)), of_recording(recorded(after)))
    return {change.resource.type.rpartition(":")[2] for change in changes}


def test_a_larger_size_changes_the_template_and_slurm_s_configuration_at_most() -> None:
    assert changed_kinds(ELASTIC, {"min": 1, "max": 32}) <= {"PodTemplate", "ConfigMap", "Job"}
    assert changed_kinds({"max": 64}, {"max": 32}) == {"PodTemplate"}


def test_slurm_keeps_what_is_kept_and_another_number_makes_no_pod_anew() -> None:
    before, after = recorded(ELASTIC), recorded({**ELASTIC, "min": 4})
    assert (pool_in(after).digest, pool_in(after).least) == (pool_in(before).digest, 4)
    others = (
        recorded(ELASTIC, idle_timeout="1h"),
        recorded(ELASTIC, resources__memory="2Gi"),
        recorded(ELASTIC, tmp="9Gi"),
    )
    assert [pool_in(other).digest == pool_in(before).digest for other in others] == [True, False, False]
    assert "SuspendExcNodes=gpu-[0-63]:1" in slurm_conf(before)
    assert "SuspendExcNodes=gpu-[0-63]:4" in slurm_conf(after)
    assert not [line for line in slurm_conf(recorded({"max": 2})) if line.startswith("SuspendExcNodes")]


def test_a_weight_is_read_in_place_and_makes_no_pod_or_record_anew() -> None:
    for size in (2, ELASTIC):
        before, after = recorded(size), recorded(size, weight=20)
        changes = compare(of_recording(before), of_recording(after))
        # The Job waits until the configuration is in force.
        assert {(change.kind, change.action) for change in changes} == {("ConfigMap", "update"), ("Job", "replace")}
        assert inputs(after, "slurm-configuration-files")["data"]["pool.weights"] == "gpu 20\n"


def test_a_preemptible_pool_s_pods_may_be_evicted_and_know_what_that_means() -> None:
    usual, spot = (objects(recorded(ELASTIC, preemptible=one), "PodTemplate")["gpu"] for one in (False, True))
    spot["template"]["spec"]["containers"][0]["env"].remove({"name": "PREEMPTIBLE", "value": "yes"})
    annotations = usual["template"]["metadata"]["annotations"]
    assert annotations.pop("karpenter.sh/do-not-disrupt") == "true"
    assert annotations == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert spot["template"] == usual["template"]
