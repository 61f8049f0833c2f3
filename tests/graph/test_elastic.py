"""What the program registers for a pool whose nodes Slurm starts and ends."""

from __future__ import annotations

from cli.change.change import of_recording
from cli.change.compare import compare
from cli.change.diff import KINDS
from cli.program.recording import Recording
from images.common.elastic.view import SETTINGS, Pool, pool_of
from images.common.slurm_node import NodeConf
from images.elastic.pods import SUBDOMAIN
from images.elastic.server import PORT
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
    elastic = recorded(ELASTIC, resume_timeout="5m")
    item = objects(elastic, "PodTemplate")["gpu"]
    pool = pool_of(item)
    assert isinstance(pool, Pool)
    assert (pool.name, pool.least, pool.most, pool.resume_timeout) == ("gpu", 1, 64, 300.0)
    (conf,) = [one["value"] for one in item["template"]["spec"]["containers"][0]["env"] if one["name"] == "NODE_CONF"]
    assert pool.conf == f"{NodeConf.parse(conf).text} Weight=1000"
    assert (SETTINGS, SUBDOMAIN, PORT) == (ELASTIC_SETTINGS, NODES_SERVICE, ELASTIC_PORT)


def test_slurm_powers_its_nodes_by_our_programs_and_no_others() -> None:
    lines = slurm_conf(recorded(ELASTIC, idle_timeout="10m", resume_timeout="15m"))
    assert "SuspendTime=315360000" in lines
    assert "SuspendExcNodes=gpu-[0-63]:1" in lines
    hidden = "PartitionName=elastic-gpu Nodes=gpu Hidden=YES State=INACTIVE SuspendTime=600 ResumeTimeout=900"
    assert hidden in lines
    (parameters,) = [line for line in lines if line.startswith("SlurmctldParameters=")]
    assert {"power_save_interval=0", "power_save_min_interval=0"} <= set(parameters.partition("=")[2].split(","))
    assert objects(recorded(ELASTIC), "ConfigMap")["slurm-config"]["data"]["elastic.pools"] == "gpu\n"
    fixed = slurm_conf(recorded(2))
    assert not [line for line in fixed if line.startswith(("Resume", "Suspend", "PrologSlurmctld")) or "power_" in line]


def test_who_may_make_pods_is_in_a_pod_of_its_own_and_may_nothing_else() -> None:
    elastic = recorded(ELASTIC)
    rules = objects(elastic, "Role")["elastic"]["rules"]
    allowed = {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}
    assert allowed == {
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
    assert (
        subject["name"] == objects(elastic, "Deployment")["elastic"]["spec"]["template"]["spec"]["serviceAccountName"]
    )


def test_a_larger_size_changes_the_template_and_slurm_s_configuration_at_most() -> None:
    changes = compare(of_recording(recorded(ELASTIC)), of_recording(recorded({"min": 1, "max": 32})))
    kinds = {change.resource.type.rpartition(":")[2] for change in changes}
    assert kinds <= {"PodTemplate", "ConfigMap", "Job"}
    only = compare(of_recording(recorded({"max": 64})), of_recording(recorded({"max": 32})))
    assert {change.resource.type.rpartition(":")[2] for change in only} == {"PodTemplate"}


WINDOWS = [{"days": "mon-fri", "hours": "22:00-06:00", "min": 4}, {"days": "sun", "hours": "08:00-24:00", "max": 2}]


def test_windows_are_in_the_settings_alone_and_slurm_keeps_what_is_kept_at_any_time() -> None:
    before, after = recorded(ELASTIC), recorded(ELASTIC, windows=WINDOWS, timezone="Europe/Berlin", idle_timeout="5m")
    pool, same = (pool_of(objects(one, "PodTemplate")["gpu"]) for one in (after, before))
    assert pool is not None
    assert same is not None
    assert pool.digest == same.digest, "no pod is made anew"
    assert (pool.least, pool.most, pool.idle_timeout, pool.timezone) == (1, 64, 300, "Europe/Berlin")
    night, sunday = pool.windows
    assert (sorted(night.days), night.begin, night.end) == ([0, 1, 2, 3, 4], 1320, 360)
    assert (night.least, night.most) == (4, 64)
    assert (sunday.name, sunday.end, sunday.least, sunday.most) == ("sun 08:00-24:00", 1440, 1, 2)
    assert "SuspendExcNodes=gpu-[0-63]:4" in slurm_conf(after)
    assert "SuspendExcNodes=gpu-[0-63]:1" in slurm_conf(recorded(ELASTIC, windows=[{"min": 0, "days": "sun"}]))
    assert not [line for line in slurm_conf(recorded({"max": 2})) if line.startswith("SuspendExcNodes")]


def test_a_preemptible_pool_s_pods_may_be_evicted_and_know_what_that_means() -> None:
    usual, spot = (objects(recorded(ELASTIC, preemptible=one), "PodTemplate")["gpu"] for one in (False, True))
    env = spot["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PREEMPTIBLE", "value": "yes"} in env
    env.remove({"name": "PREEMPTIBLE", "value": "yes"})
    annotations = usual["template"]["metadata"]["annotations"]
    assert annotations.pop("karpenter.sh/do-not-disrupt") == "true"
    assert annotations == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert spot == usual


def test_other_pools_are_as_they_were() -> None:
    for kind in ("StatefulSet", "Service", "Secret"):
        fixed, elastic = objects(recorded(2), kind), objects(recorded(ELASTIC), kind)
        same = fixed.keys() - {"gpu", "elastic"}
        assert {name: fixed[name] for name in same} == {name: elastic[name] for name in same}


def rights(recording: Recording) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """Resources, verbs and names of objects."""
    rules = objects(recording, "Role")["elastic"]["rules"]
    return [(tuple(one["resources"]), tuple(one["verbs"]), tuple(one.get("resourceNames") or ())) for one in rules]


def test_without_elastic_pools_the_program_may_end_pods_and_make_none_and_nobody_asks_it() -> None:
    alone = recorded(3)
    assert rights(alone) == [(("pods",), ("list", "watch", "delete"), ()), (("statefulsets",), ("list", "watch"), ())]
    pod = objects(alone, "Deployment")["elastic"]["spec"]["template"]["spec"]
    assert {"name": "POOLS", "value": "none"} in pod["containers"][0]["env"]
    assert "elastic" not in objects(alone, "Service")


def test_a_look_at_the_namespace_finds_elastic_pools() -> None:
    kinds = {
        item.inputs["kind"].lower() for item in recorded(ELASTIC) if "namespace" in item.inputs.get("metadata", {})
    }
    assert "podtemplate" in kinds <= set(KINDS)
