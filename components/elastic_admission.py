"""What `elastic` may do with pods: make those of elastic pools, as their PodTemplates have them, and end workers.

By its rights it could make a pod with any Secret, any ServiceAccount and the machine's disks.

What a template says is written into its pool's policy. As the policy's parameter Kubernetes would look for it before it
asks whose request it is, and refuse everybody's pods where there is none (1.34). The policy changes right before the
template, when all is there that both wait for: in the second between them `elastic` is refused, and tries again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.admissionregistration import v1 as api

from components.kit.context import Scope
from slurm.names import ELASTIC, POOL_LABEL

_OF_POD: Final = (
    "serviceAccountName", "automountServiceAccountToken", "hostNetwork", "hostPID", "hostIPC", "hostUsers",
    "hostAliases", "shareProcessNamespace", "securityContext", "runtimeClassName", "dnsConfig", "nodeName",
    "resourceClaims",
)  # fmt: skip
"""What a pod has as its template has it. Not what Kubernetes and webhooks may add: tolerations, pull secrets."""
_OF_CONTAINER: Final = (
    "image", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "volumeDevices", "securityContext",
    "lifecycle", "livenessProbe.?exec", "readinessProbe.?exec", "startupProbe.?exec", "restartPolicy",
)  # fmt: skip
"""The same of a container. A LimitRange adds to resources."""
_OF_CLAIM: Final = ("storageClassName", "volumeName", "selector", "dataSource", "dataSourceRef")
"""The same of a claim that comes and goes with its pod."""
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {"configMap": {"defaultMode": 420}, "fieldRef": {"apiVersion": "v1"}}
"""What the API server adds to these."""
_POOL: Final = f"metadata.?labels[?'{POOL_LABEL}'].orValue('')"


def hold_to_workers(name: str, scope: Scope) -> None:
    """Have the API server refuse `elastic` pods of no elastic pool, and the end of others than workers."""
    pools = _literal([*scope.config.elastic_pools])
    rules = {
        f"request.operation != 'CREATE' || object.{_POOL} in {pools}": "makes pods of elastic pools",
        f"request.operation != 'DELETE' || oldObject.{_POOL} != ''": "ends workers",
    }
    _policy(name, scope, rules)


def hold_to_template(
    name: str, scope: Scope, pool: str, template: k8s.core.v1.PodTemplateSpecArgs, after: Sequence[pulumi.Resource]
) -> pulumi.Resource:
    """Have it refuse pods of a pool that are not as its template; what the template is changed after."""
    claim = "ephemeral.volumeClaimTemplate.spec"
    of_claim = " && ".join(f"v.{claim}.?{field} == w.{claim}.?{field}" for field in _OF_CLAIM)
    made = f"has(v.emptyDir) && has(w.emptyDir) || has(v.ephemeral) && has(w.ephemeral) && {of_claim}"
    volume = f"variables.pod.volumes.exists(w, v == w || v.name == w.name && ({made}))"
    of_pod = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    container = f"{of_pod}.all(c, variables.pod.containers.exists(t, c.name == t.name && %s))"
    # To a pod without a class Kubernetes gives the default one, where there is one.
    other = "!has(variables.pod.priorityClassName) && !object.spec.priorityClassName.startsWith('system-')"
    rules = {
        f"object.metadata.name.matches('^{pool}-[0-9]+$')": "name",
        f"object.metadata.?ownerReferences.orValue([]).all(o, o.kind == 'PodTemplate' && o.name == '{pool}')": "owner",
        "!has(object.metadata.finalizers)": "finalizers",
        "object.spec.?hostname.orValue('') == object.metadata.name": "hostname",
        "variables.pod.labels.all(k, object.metadata.labels[?k].orValue('') == variables.pod.labels[k])": "labels",
        f"object.spec.?priorityClassName == variables.pod.?priorityClassName || {other}": "priorityClassName",
        f"object.spec.?volumes.orValue([]).all(v, {volume})": "volumes",
        **{f"object.spec.?{field} == variables.pod.?{field}": field for field in _OF_POD},
        **{container % f"c.?{field} == t.?{field}": f"{field} of a container" for field in _OF_CONTAINER},
        container % "c.?ports.orValue([]).all(p, !has(p.hostPort))": "hostPort",
    }
    told = {rule: f"makes pods of {pool} as the stack file has them: {what}" for rule, what in rules.items()}
    pod = api.VariableArgs(name="pod", expression=pulumi.Output.from_input(template).apply(_wanted))
    return _policy(name, scope, told, pool=pool, variables=[pod], after=after)


def digest_of(template: k8s.core.v1.PodTemplateSpecArgs) -> pulumi.Output[str]:
    """Of what was applied: a newer Kubernetes may add to what it has, and no pod is to be made anew for that."""
    return pulumi.Output.from_input(template).apply(lambda one: hashlib.sha256(_wanted(one).encode()).hexdigest()[:16])


def _wanted(template: k8s.core.v1.PodTemplateSpecArgs) -> str:
    """What pods are compared with, in CEL."""
    spec, metadata = _plain(template.spec), _plain(template.metadata)
    containers = [*spec["initContainers"], *spec["containers"]]
    return _literal({"serviceAccountName": "default", **spec, **metadata, "containers": containers})


def _plain(value: Any, of: str = "") -> Any:
    """A part of a template as the API server has it, which leaves out what is empty."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | dict):
        return value
    named = {re.sub("_+([a-z]?)", lambda found: found[1].upper(), key): item for key, item in vars(value).items()}
    return _DEFAULTS.get(of, {}) | {key: _plain(item, key) for key, item in named.items() if item not in (None, "", [])}


def _literal(value: Any) -> str:
    """A value in CEL, in whose maps all values have to be of one type."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: dyn({_literal(value[key])})' for key in sorted(value))}}}"
    return json.dumps(value, ensure_ascii=False)


def _policy(
    name: str, scope: Scope, rules: Mapping[str, str], *,
    pool: str = "", variables: Sequence[api.VariableArgs] = (), after: Sequence[pulumi.Resource] = (),
) -> pulumi.Resource:  # fmt: skip
    """A policy for what `elastic` does with pods, or those of a pool, in the namespace. `rules`: what is so -> what."""
    called = f"{scope.name}-{ELASTIC}"  # shared by all clusters in one Kubernetes
    who = f"request.userInfo.username == 'system:serviceaccount:{scope.name}:{ELASTIC}'"
    if pool:
        called, who = f"{called}.{pool}", f"{who} && request.operation == 'CREATE' && object.{_POOL} == '{pool}'"
    pods = api.NamedRuleWithOperationsArgs(
        api_groups=[""], api_versions=["v1"], resources=["pods"], operations=["CREATE", "DELETE"]
    )
    metadata = k8s.meta.v1.ObjectMetaArgs(name=called, labels=scope.labels(ELASTIC))
    outside = pulumi.ResourceOptions(parent=scope.root, depends_on=[*after])
    policy = api.ValidatingAdmissionPolicySpecArgs(
        match_conditions=[api.MatchConditionArgs(name=ELASTIC, expression=who)],
        match_constraints=api.MatchResourcesArgs(resource_rules=[pods]),
        variables=variables or None,
        validations=[
            api.ValidationArgs(expression=rule, message=f"{ELASTIC} {what}", reason="Forbidden")
            for rule, what in rules.items()
        ],
    )
    made = api.ValidatingAdmissionPolicy(f"{name}-policy", metadata=metadata, spec=policy, opts=outside)
    here = k8s.meta.v1.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": scope.name})
    binding = api.ValidatingAdmissionPolicyBindingSpecArgs(
        policy_name=made.metadata.name,
        validation_actions=["Deny"],
        match_resources=api.MatchResourcesArgs(namespace_selector=here),
    )
    return api.ValidatingAdmissionPolicyBinding(f"{name}-binding", metadata=metadata, spec=binding, opts=outside)
