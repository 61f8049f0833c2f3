"""What the program registers for a pool whose nodes Slurm starts and ends."""

from __future__ import annotations

from cli.program.recording import Recording
from cli.safety.change import of_recording
from cli.safety.compare import compare
from images.elastic.pods import SUBDOMAIN
from images.elastic.server import PORT
from images.elastic.view import SETTINGS, Pool, pool_of
from slurm.names import ELASTIC_PORT, ELASTIC_SETTINGS, NODES_SERVICE
from tests.graph.elastic import ELASTIC, objects, recorded


def slurm_conf(recording: Recording) -> list[str]:
    return str(objects(recording, "ConfigMap")["slurm-config"]["data"]["slurm.conf"]).splitlines()


def test_it_is_a_template_of_the_very_pod_that_a_fixed_pool_has_and_says_so() -> None:
    fixed, elastic = recorded(2), recorded(ELASTIC)
    template = objects(elastic, "PodTemplate")["gpu"]["template"]
    pod = objects(fixed, "StatefulSet")["gpu"]["spec"]["template"]
    assert "gpu" not in objects(elastic, "StatefulSet")
    env = template["spec"]["containers"][0]["env"]
    pool = pool_of(objects(elastic, "PodTemplate")["gpu"])
    assert pool is not None
    env.remove({"name": "ELASTIC", "value": pool.mark})
    assert template == pod


def test_the_program_reads_of_the_template_what_the_stack_file_says() -> None:
    elastic = recorded(ELASTIC, resume_timeout="5m", launch="best_effort")
    item = objects(elastic, "PodTemplate")["gpu"]
    pool = pool_of(item)
    assert isinstance(pool, Pool)
    assert (pool.name, pool.least, pool.most, pool.resume_timeout, pool.all_or_nothing) == ("gpu", 1, 64, 300.0, False)
    (conf,) = [one["value"] for one in item["template"]["spec"]["containers"][0]["env"] if one["name"] == "NODE_CONF"]
    assert pool.conf == f"{conf} Weight=1000"
    assert (SETTINGS, SUBDOMAIN, PORT) == (ELASTIC_SETTINGS, NODES_SERVICE, ELASTIC_PORT)


def test_slurm_powers_its_nodes_by_our_programs_and_no_others() -> None:
    lines = slurm_conf(recorded(ELASTIC, idle_timeout="10m", resume_timeout="15m"))
    assert "SuspendTime=315360000" in lines
    assert "SuspendExcNodes=gpu-[0-63]:1" in lines
    hidden = "PartitionName=elastic-gpu Nodes=gpu Hidden=YES State=INACTIVE SuspendTime=600 ResumeTimeout=900"
    assert hidden in lines
    (parameters,) = [line for line in lines if line.startswith("SlurmctldParameters=")]
    assert {"power_save_interval=1", "power_save_min_interval=0"} <= set(parameters.partition("=")[2].split(","))
    assert objects(recorded(ELASTIC), "ConfigMap")["slurm-config"]["data"]["elastic.pools"] == "gpu\n"
    fixed = slurm_conf(recorded(2))
    assert not [line for line in fixed if line.startswith(("Resume", "Suspend", "PrologSlurmctld")) or "power_" in line]


def test_who_may_make_pods_is_in_a_pod_of_its_own_and_may_nothing_else() -> None:
    elastic = recorded(ELASTIC)
    rules = objects(elastic, "Role")["elastic"]["rules"]
    allowed = {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}
    assert allowed == {"pods": ["list", "watch", "create", "delete"], "podtemplates": ["list", "watch"]}
    makers = [
        name
        for name, item in objects(elastic, "Role").items()
        if any("pods" in rule["resources"] and "create" in rule["verbs"] for rule in item["rules"])
    ]
    assert makers == ["elastic"]
    (subject,) = objects(elastic, "RoleBinding")["elastic"]["subjects"]
    assert (
        subject["name"] == objects(elastic, "Deployment")["elastic"]["spec"]["template"]["spec"]["serviceAccountName"]
    )


def test_a_larger_size_changes_the_template_and_slurm_s_configuration_at_most() -> None:
    changes = compare(of_recording(recorded(ELASTIC)), of_recording(recorded({"min": 1, "max": 32})))
    kinds = {change.resource.type.rpartition(":")[2] for change in changes}
    assert kinds <= {"PodTemplate", "ConfigMap", "Job"}
    only = compare(of_recording(recorded({"max": 64})), of_recording(recorded({"max": 32})))
    assert {change.resource.type.rpartition(":")[2] for change in only} == {"PodTemplate"}


def test_other_pools_are_as_they_were() -> None:
    for kind in ("StatefulSet", "Service", "Secret"):
        fixed, elastic = objects(recorded(2), kind), objects(recorded(ELASTIC), kind)
        same = fixed.keys() - {"gpu", "elastic"}
        assert {name: fixed[name] for name in same} == {name: elastic[name] for name in same}
