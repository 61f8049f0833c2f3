"""What `elastic` may do with pods: make those of elastic pools, as their PodTemplates have them, and end workers.

By its rights it could make a pod with any Secret, any ServiceAccount and the machine's disks. A pool's PodTemplate is
the parameter of its policy. Kubernetes looks for that before it asks whose request it is, and refuses everybody's pods
where there is none (1.34): so it is asked of pods that only `elastic` makes, by their labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.admissionregistration import v1 as api
from pulumi_kubernetes.meta import v1 as meta

from components.kit.context import Scope
from slurm.names import ELASTIC, ELASTIC_TEMPLATE, POOL_LABEL

_OF_POD: Final = (
    "automountServiceAccountToken", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostAliases",
    "shareProcessNamespace", "securityContext", "runtimeClassName", "dnsConfig", "nodeName", "resourceClaims",
)  # fmt: skip
"""What a pod has as its template has it. Not what Kubernetes and webhooks may add: tolerations, pull secrets."""
_OF_CONTAINER: Final = (
    "image", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "volumeDevices", "securityContext",
    "lifecycle", "livenessProbe.?exec", "readinessProbe.?exec", "startupProbe.?exec", "restartPolicy",
)  # fmt: skip
"""The same of a container. A LimitRange adds to resources."""
_VARIABLES: Final = {
    "pod": "dyn(params.template.spec)",
    "labels": "dyn(params.template.metadata.labels)",
    "wanted": "variables.pod.containers + variables.pod.?initContainers.orValue([])",
    "containers": "object.spec.containers + object.spec.?initContainers.orValue([])",
}
_POOL: Final = f"metadata.?labels[?'{POOL_LABEL}'].orValue('')"


def hold_to_workers(name: str, scope: Scope, pools: Sequence[str]) -> None:
    """Have the API server refuse `elastic` all pods but those of these pools, and the end of others than workers."""
    labelled = f"object.{_POOL} in {json.dumps(pools)} && '{ELASTIC_TEMPLATE}' in object.metadata.labels"
    rules = {
        f"request.operation != 'CREATE' || {labelled}": "makes pods of elastic pools",
        f"request.operation != 'DELETE' || oldObject.{_POOL} != ''": "ends workers",
    }
    called = f"{scope.name}-{ELASTIC}"
    _bind(name, scope, _policy(name, scope, called, rules, ELASTIC), called)
    # No namespace has dots in its name.
    called, told = f"{scope.name}.{ELASTIC}", f"{ELASTIC} makes pods as the stack file has them:"
    as_template = _policy(f"{name}-template", scope, called, _as_template(), told, of_template=True)
    for pool in pools:
        _bind(f"{name}-{pool}", scope, as_template, f"{called}.{pool}", pool)


def _as_template() -> dict[str, str]:
    """What is so of a pod that is as its pool's template -> name."""
    container = "variables.containers.all(c, variables.wanted.exists(t, c.name == t.name && %s))"
    # To a pod without an account or a class Kubernetes gives the default one, where there is one.
    account = "?serviceAccountName.orValue('default')"
    other = "!has(variables.pod.priorityClassName) && !object.spec.priorityClassName.startsWith('system-')"
    return {
        "object.metadata.name.matches('^' + params.metadata.name + '-[0-9]+$')": "name",
        "object.spec.?hostname.orValue('') == object.metadata.name": "hostname",
        "variables.labels.all(k, object.metadata.labels[?k].orValue('') == variables.labels[k])": "labels",
        f"object.spec.{account} == variables.pod.{account}": "serviceAccountName",
        f"object.spec.?priorityClassName == variables.pod.?priorityClassName || {other}": "priorityClassName",
        "object.spec.?volumes.orValue([]).all(v, v in variables.pod.volumes)": "volumes",
        **{f"object.spec.?{field} == variables.pod.?{field}": field for field in _OF_POD},
        **{container % f"c.?{field} == t.?{field}": f"{field} of a container" for field in _OF_CONTAINER},
        container % "c.?ports.orValue([]).all(p, !has(p.hostPort))": "hostPort",
    }


def digest_of(template: k8s.core.v1.PodTemplateSpecArgs) -> pulumi.Output[str]:
    """Of what was applied: a newer Kubernetes may add to what it has, and no pod is to be made anew for that."""
    text = pulumi.Output.from_input(template).apply(lambda known: json.dumps(known, default=vars, sort_keys=True))
    return text.apply(lambda known: hashlib.sha256(known.encode()).hexdigest()[:16])


def _policy(
    name: str, scope: Scope, called: str, rules: Mapping[str, str], told: str, *, of_template: bool = False
) -> api.ValidatingAdmissionPolicy:
    """A policy for what `elastic` does with pods in the namespace. `rules`: what is so -> name."""
    theirs = f"request.userInfo.username == 'system:serviceaccount:{scope.name}:{ELASTIC}'"
    does = ["CREATE"] if of_template else ["CREATE", "DELETE"]
    pods = api.NamedRuleWithOperationsArgs(api_groups=[""], api_versions=["v1"], resources=["pods"], operations=does)
    variables = [api.VariableArgs(name=key, expression=value) for key, value in _VARIABLES.items()]
    spec = api.ValidatingAdmissionPolicySpecArgs(
        param_kind=api.ParamKindArgs(api_version="v1", kind="PodTemplate") if of_template else None,
        match_conditions=[api.MatchConditionArgs(name=ELASTIC, expression=theirs)],
        match_constraints=api.MatchResourcesArgs(resource_rules=[pods]),
        variables=variables if of_template else None,
        validations=[
            api.ValidationArgs(expression=rule, message=f"{told} {what}", reason="Forbidden")
            for rule, what in rules.items()
        ],
    )
    metadata = meta.ObjectMetaArgs(name=called, labels=scope.labels(ELASTIC))
    outside = pulumi.ResourceOptions(parent=scope.root)
    return api.ValidatingAdmissionPolicy(f"{name}-policy", metadata=metadata, spec=spec, opts=outside)


def _bind(name: str, scope: Scope, policy: api.ValidatingAdmissionPolicy, called: str, pool: str | None = None) -> None:
    """`pool`: for its pods, with its template."""
    here = meta.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": scope.name})
    made = meta.LabelSelectorRequirementArgs(key=ELASTIC_TEMPLATE, operator="Exists")
    theirs = meta.LabelSelectorArgs(match_labels={POOL_LABEL: pool}, match_expressions=[made]) if pool else None
    spec = api.ValidatingAdmissionPolicyBindingSpecArgs(
        policy_name=policy.metadata.name,
        validation_actions=["Deny"],
        match_resources=api.MatchResourcesArgs(namespace_selector=here, object_selector=theirs),
        param_ref=api.ParamRefArgs(name=pool, parameter_not_found_action="Deny") if pool else None,
    )
    metadata = meta.ObjectMetaArgs(name=called, labels=scope.labels(ELASTIC))
    outside = pulumi.ResourceOptions(parent=scope.root)
    api.ValidatingAdmissionPolicyBinding(f"{name}-binding", metadata=metadata, spec=spec, opts=outside)
