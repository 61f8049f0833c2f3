"""The REST API, images, rules at submission, and settings that say the same thing as a section."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from config import load_config
from config.schema import stack_file_schema
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints, policy_complaint, with_sections

DIGEST = f"sha256:{'a' * 64}"
EXTERNAL: dict[str, Any] = {"host": "db.example", "password": {"name": "db", "key": "password"}}
TEAMS: dict[str, Any] = {"accounts": {"ml": {}}, "users": {"alice": {"uid": 10001, "accounts": ["ml"]}}}
OFF = {"enabled": False}
MAIN: dict[str, Any] = {"pools": ["cpu"]}


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"service_type": "ClusterIP", "node_port": 30000}, "rest.node_port: is only for service_type NodePort"),
        ({"tls": {"secret": "cert", "names": ["api.example"]}}, "rest.tls.names: has no effect on a certificate"),
        ({"tls": {"secret": "cert", "issuer": {"name": "ca"}}}, "rest.tls: has both secret and issuer"),
        ({"tls": {"names": ["https://api.example"]}}, "rest.tls.names.0: "),
        (
            {"tls": {"names": ["10.0.0.300"]}},
            "rest.tls.names.0: '10.0.0.300' has the host '10.0.0.300', which is no",
        ),
    ],
)
def test_keys_of_the_rest_api_that_do_not_fit_are_named(sections: dict[str, Any], complaint: str) -> None:
    assert policy_complaint(rest={"enabled": True, **sections}).startswith(complaint)


def test_the_rest_api_needs_accounting() -> None:
    complaint = policy_complaint(rest={"enabled": True}, accounting=OFF)
    assert complaint.startswith("rest.enabled: needs accounting.enabled")


def test_ranges_that_nothing_could_enforce_are_named() -> None:
    rest = {"enabled": True, "service_type": "NodePort", "source_ranges": ["10.0.0.0/8"]}
    load_config(with_sections(rest=rest))
    complaint = policy_complaint(rest=rest, network_policies={"enabled": False})
    assert complaint.startswith("rest.source_ranges: has no effect: only network policies could enforce it")


def test_digests_of_the_controller_want_those_of_the_other_daemons() -> None:
    images: dict[str, Any] = {
        "registry": "registry.example/x",
        "digests": dict.fromkeys(("controller", "worker", "login", "jail"), DIGEST),
    }
    complaint = policy_complaint(images=images)
    assert complaint.startswith("images.digests: pins the controller but not accounting and database, which this stack")
    assert "accounting and rest," in policy_complaint(
        images=images, accounting={"database": {"external": EXTERNAL}}, rest={"enabled": True}
    )
    load_config(with_sections(images=images, accounting=OFF))
    images["digests"] |= {"accounting": DIGEST, "database": DIGEST}
    load_config(with_sections(images=images))


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"job_submit": {"require_account": True}}, "job_submit.require_account: is set, but no accounts are declared"),
        (
            {"job_submit": {"default_time": "2-0"}},
            "job_submit.default_time: 2-0 is longer than the max_time 1-00:00:00 of the partition 'main'",
        ),
        (
            {"job_submit": {"default_time": "5"}, "partitions": {"main": {**MAIN, "default_time": "10"}}},
            "job_submit.default_time: never matters",
        ),
        (
            {"partitions": {"main": {**MAIN, "default_time": "UNLIMITED", "max_time": "1-0"}}},
            "partitions.main.default_time: UNLIMITED is longer than max_time, 1-0",
        ),
        (
            {
                "job_submit": {"gpus_only_in_gpu_partitions": True},
                "worker_nodes": {"cpu": {"size": 1, "resources": {"cpus": 2, "memory": "4Gi"}}},
                "partitions": {"main": MAIN},
            },
            "job_submit.gpus_only_in_gpu_partitions: never matters: no pool has GPUs",
        ),
        (
            {"job_submit": {"gpus_only_in_gpu_partitions": True}, "partitions": {"main": {"pools": ["cpu", "gpu"]}}},
            "job_submit.gpus_only_in_gpu_partitions: never matters: every partition has nodes with and without GPUs",
        ),
    ],
)
def test_rules_that_cannot_matter_are_named(sections: dict[str, Any], complaint: str) -> None:
    assert policy_complaint(**sections).startswith(complaint)


def test_gpus_in_gpu_partitions_only_is_accepted_where_there_are_both() -> None:
    load_config(with_sections(job_submit={"gpus_only_in_gpu_partitions": True, "default_time": "1:00:00"}))


@pytest.mark.parametrize(
    ("settings", "sections", "complaint"),
    [
        ({"AccountingStorageType": "accounting_storage/none"}, {}, "which belongs to slurmstack:accounting.enabled"),
        ({"authaltparameters": "jwt_key=/x"}, {}, "which belongs to slurmstack:rest"),
        ({"PreemptMode": "CANCEL"}, {"preemption": {"type": "partition", "mode": "cancel"}}, "preemption.mode says"),
        ({"Licenses": "ansys:3"}, {"licenses": {"ansys": 3}}, "and licenses says the same thing"),
        ({"PriorityWeightQOS": 5}, {"priority": {"weights": {"qos": 6}}}, "and priority.weights.qos says"),
        ({"PriorityType": "priority/basic"}, {"priority": {"max_age": "1-0"}}, "and priority says"),
        ({"AccountingStorageEnforce": "safe"}, {"accounting": {"enforce": []}, **TEAMS}, "accounting.enforce says"),
        ({"AccountingStorageEnforce": "safe"}, {}, "but no accounts are declared"),
        ({"JobSubmitPlugins": "lua"}, {"job_submit": {"default_time": "1:00:00"}}, "the rules of job_submit need"),
        ({"AccountingStorageTRES": "license/ansys"}, {}, "without gres/gpu, which would not be recorded"),
        (
            {"AccountingStorageTRES": ["gres/gpu"]},
            {"licenses": {"ansys": 3}, "qos": {"cad": {"grp_tres": {"license/ansys": 2}}}},
            "without license/ansys, which would not be recorded",
        ),
    ],
)
def test_settings_that_contradict_a_section_are_named(
    settings: dict[str, Any], sections: dict[str, Any], complaint: str
) -> None:
    found = policy_complaint(slurm={"settings": settings}, **sections)
    assert found.startswith("slurm.settings: has the key ")
    assert complaint in found


def test_settings_win_over_defaults_that_nobody_wrote() -> None:
    settings = {
        "PriorityWeightQOS": 5,
        "JobSubmitPlugins": "all_partitions",
        "AccountingStorageTRES": ["gres/gpu", "billing"],
    }
    load_config(with_sections(slurm={"settings": settings}, priority={"weights": {"age": 5}}))


def test_a_partition_s_option_is_given_once() -> None:
    partition = {**MAIN, "priority_tier": 5, "settings": {"prioritytier": 10}}
    complaint = policy_complaint(partitions={"main": partition})
    assert complaint.startswith("partitions.main.settings: has the key 'prioritytier', and priority_tier says the same")


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("accounts", {"Physics": {}}),
        ("accounts", {"physics": {"max_wall": "1 day"}}),
        ("accounts", {"physics": {"fairshare": "parents"}}),
        ("accounts", {"physics": {"grp_tres": {"gpu": 1}}}),
        ("qos", {"a b": {}}),
        ("users", {"Alice": {"uid": 10001}}),
        ("users", {"alice": {"uid": 10001, "accounts": ["A B"]}}),
        ("partitions", {"1st": {"pools": ["cpu"]}}),
        ("reservations", {"r": {"start": "tomorrow"}}),
        ("accounting", {"retention": {"jobs": "3years"}}),
        ("sssd", {"secret": "SSSD"}),
    ],
)
def test_editors_see_wrong_names_and_values_too(section: str, value: Any) -> None:
    document = {"config": {f"slurmstack:{name}": part for name, part in with_sections(**{section: value}).items()}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, stack_file_schema())


def test_editors_accept_what_we_accept() -> None:
    sections = with_sections(
        accounts={"ml": {"fairshare": "parent", "grp_tres": {"gres/gpu:h100": 8}}, "cv": {"fairshare": 3}},
        users={
            "alice": {"uid": 10001, "accounts": ["ml"]},
            "bob": {"uid": 10002, "accounts": {"ml": {"max_wall": "unlimited"}}},
        },
        reservations={
            "r": {"start": "2999-01-01T00:00", "duration": "1-0", "node_count": 1, "users": ["alice"]}
        },
        licenses={"ansys": 3},
        accounting={"retention": {"jobs": "90days", "steps": None}, "database": {"external": EXTERNAL}},
        sssd={"secret": "sssd"},
    )  # fmt: skip
    load_config(sections)
    jsonschema.validate(
        {"config": {f"slurmstack:{name}": part for name, part in sections.items()}}, stack_file_schema()
    )


def test_a_dashboard_needs_the_rest_api_behind_whose_tls_it_is() -> None:
    told = policy_complaint(dashboard={"enabled": True})
    assert told.startswith("dashboard.enabled: needs the REST API, behind whose TLS it is, and rest.enabled is false")
    load_config(with_sections(dashboard={"enabled": True}, rest={"enabled": True}))
    load_config(with_sections(dashboard={"enabled": False, "memory": "128Mi"}))


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            {"login": {"user_limits": {"memory": "32Mi"}}},
            "login.user_limits.memory: '32Mi' is too little for a shell and the threads of srun; 64Mi at least",
        ),
        (
            {"login": {"user_limits": {"total_memory": "32Mi"}}},
            "login.user_limits.total_memory: '32Mi' is too little for a shell and the threads of srun; 64Mi at least",
        ),
        (
            {"login": {"user_limits": {"total_cpus": "99m"}}},
            "login.user_limits.total_cpus: '99m' is too little for a shell; 100m at least",
        ),
        (
            {"accounting": {"database": {"memory": "255Mi"}}},
            "accounting.database.memory: '255Mi' is too little for MariaDB; 256Mi at least",
        ),
        ({"login": {"memory": "1k"}}, "login.memory: '1k' is too little for a daemon; 32Mi at least"),
        ({"controller": {"memory": "31Mi"}}, "controller.memory: '31Mi' is too little for a daemon; 32Mi at least"),
        ({"accounting": {"memory": "1k"}}, "accounting.memory: '1k' is too little for a daemon; 32Mi at least"),
        ({"rest": {"memory": "1k"}}, "rest.memory: '1k' is too little for a daemon; 32Mi at least"),
        ({"sssd": {"secret": "s", "memory": "0Mi"}}, "sssd.memory: '0Mi' must be more than nothing"),
        ({"sssd": {"secret": "s", "memory": "1Mi"}}, "sssd.memory: '1Mi' is too little for a daemon; 32Mi at least"),
    ],
)
def test_memory_that_cannot_be_enough_is_refused(sections: dict[str, Any], told: str) -> None:
    assert policy_complaint(**sections) == told


KEY = "is not a key that Kubernetes takes: [prefix/]name, the name of at most 63 letters, digits, '-', '_' and '.'"
VALUE = "is not a value that Kubernetes takes: at most 63 letters, digits, '-', '_' and '.'"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("login.annotations", {"bad key!!": "x"}, f".bad key!!: 'bad key!!' {KEY}"),
        ("rest.annotations", {"a/b/c": "x"}, f".a/b/c: 'a/b/c' {KEY}"),
        ("worker_nodes.cpu.node_selector", {"a b": "x"}, f".a b: 'a b' {KEY}"),
        ("worker_nodes.cpu.node_selector", {"a": "x y"}, f".a: 'x y' {VALUE}"),
        ("worker_nodes.cpu.node_selector", {"a": "x" * 64}, f".a: '{'x' * 64}' {VALUE}"),
        ("worker_nodes.cpu.tolerations", [{"key": "a b!"}], f".0.key: 'a b!' {KEY}"),
        ("worker_nodes.cpu.tolerations", [{"key": "a", "value": "-x-"}], f".0.value: '-x-' {VALUE}"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_by_its_place(path: str, value: Any, told: str) -> None:
    (found,) = complaints(with_change(stacks.existing(), path, value))
    assert found.startswith(path + told)


def test_keys_and_values_of_kubernetes_are_taken() -> None:
    annotations = {"service.beta.kubernetes.io/aws-load-balancer-type": "any text, at all!"}
    sections = with_change(stacks.existing(), "login.annotations", annotations)
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100", "a": "", "B_c.d-e": "x" * 63}
    sections = with_change(sections, "worker_nodes.cpu.node_selector", selector)
    sections = with_change(sections, "worker_nodes.cpu.tolerations", [{"key": "a.b/c", "value": ""}, {"key": "d"}])
    assert load_config(sections).worker_nodes["cpu"].node_selector == selector


def test_a_partition_without_any_time_is_refused() -> None:
    for limit in ("0", "00:00", "0-0", "0:00:00"):
        complaint = policy_complaint(partitions={"main": {**MAIN, "max_time": limit}})
        assert complaint.startswith(f"partitions.main.max_time: '{limit}' is no time at all, so that no job could run")
    load_config(with_sections(partitions={"main": {**MAIN, "max_time": "00:30"}}))


@pytest.mark.parametrize(("request_", "is_taken"), [("64", False), ("2001m", False), ("2", True), ("500m", True)])
def test_a_pod_asks_for_at_most_twice_the_cpus_of_its_node(request_: str, *, is_taken: bool) -> None:
    resources = {"cpus": 1, "memory": "4Gi", "cpu_request": request_}
    sections = with_change(stacks.existing(), "worker_nodes.plain.resources", resources)
    if is_taken:
        load_config(sections)
    else:
        (complaint,) = complaints(sections)
        assert complaint.startswith(
            f"worker_nodes.plain.resources: has a cpu_request of {request_}, which is more than twice its cpus, 1; "
        )


_RANGE = "neither 'internet' nor an address range such as 10.3.0.0/24 or 10.3.0.7/32"


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        ({"egress": [{"to": "10.3.0.1/24"}]}, f".0.to: '10.3.0.1/24' is {_RANGE}: 10.3.0.1/24 has host bits set"),
        ({"egress": [{"to": "license.example"}]}, f".0.to: 'license.example' is {_RANGE}: 'license.example' does not"),
        ({"egress": [{"to": "internet", "protocol": "UDP"}]}, ".0: has a protocol but no ports; list the ports, or"),
        ({"enabled": False, "egress": []}, ": has no effect: only network policies could enforce it, and"),
    ],
)
def test_what_users_may_reach_outside_is_checked(policies: dict[str, Any], told: str) -> None:
    assert policy_complaint(network_policies=policies).startswith(f"network_policies.egress{told}")


def test_two_services_cannot_have_one_port_of_the_machines() -> None:
    both = {"service_type": "NodePort", "node_port": 30022}
    sections = stacks.existing_full() | {"login": {"size": 1, **both}, "rest": {"enabled": True, **both}}
    assert complaints(sections) == ["rest.node_port: is login.node_port, too: a machine's port leads to one Service"]
    sections["rest"] = {**sections["rest"], "node_port": 30023}
    load_config(sections)
