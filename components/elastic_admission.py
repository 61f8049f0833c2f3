"""What the program `elastic` may do with pods, beyond what rights can say.

Rights name verbs and kinds. Who may make any pod may make one with any Secret, any ServiceAccount and the machine's
disks. So the API server itself looks at each pod that `elastic` makes or ends (ValidatingAdmissionPolicy, since
Kubernetes 1.30): it makes pods of elastic pools alone, as their PodTemplates have them, and ends workers alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_kubernetes as k8s

from components.kit.context import Scope
from slurm.names import ELASTIC, POOL_LABEL, WORKER

_SAME: Final = (
    "image", "command", "args", "workingDir", "envFrom", "securityContext", "volumeMounts", "volumeDevices",
    "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "restartPolicy",
)  # fmt: skip
"""What a container has as in the template. Its resources and plain variables may be others: a LimitRange and webhooks
add to them. What a variable takes from a Secret they do not add."""

_SAME_POD: Final = (
    "serviceAccountName", "automountServiceAccountToken", "volumes", "hostNetwork", "hostPID", "hostIPC", "hostUsers",
    "shareProcessNamespace", "securityContext", "runtimeClassName",
)  # fmt: skip

_NO_OTHER_SOURCE: Final = (
    "c.?env.orValue([]).all(e, !has(e.valueFrom) || t.?env.orValue([]).exists(wanted, wanted == e))"
)

_OWNED: Final = (
    "has(object.metadata.ownerReferences) && "
    "object.metadata.ownerReferences.exists(o, o.kind == 'PodTemplate' && o.uid == params.metadata.uid)"
)

_POOL: Final = f"metadata.?labels[?'{POOL_LABEL}']"


def limit(name: str, scope: Scope, pools: Sequence[str]) -> None:
    """Have the API server refuse all other pods of the ServiceAccount. `pools`: names of the elastic ones."""
    workers = [
        _rule(f"request.operation != 'DELETE' || oldObject.{_POOL}.hasValue()", "elastic ends pods of workers alone"),
        _rule(
            f"request.operation != 'CREATE' || object.{_POOL}.orValue('') in {json.dumps(pools)}",
            "elastic makes pods of elastic pools alone",
        ),
    ]
    _bound(name, scope, ELASTIC, ["CREATE", "DELETE"], workers)
    kind = k8s.admissionregistration.v1.ParamKindArgs(api_version="v1", kind="PodTemplate")
    told = "a pod that elastic makes is as the PodTemplate of its pool has it"
    of_template = [
        _rule(f"object.{_POOL}.orValue('') != params.metadata.name || ({expression})", told)
        for expression in (_OWNED, *map(_same, _SAME_POD), _containers("containers"), _containers("initContainers"))
    ]
    _bound(f"{name}-template", scope, f"{ELASTIC}-template", ["CREATE"], of_template, kind=kind)


def _same(what: str) -> str:
    """Whether a pod has it as its template has. ServiceAccounts are named by the API server where nobody did."""
    default = ".orValue('default')" if what == "serviceAccountName" else ""
    return f"object.spec.?{what}{default} == params.template.spec.?{what}{default}"


def _containers(kind: str) -> str:
    """Whether each container of a pod is one of the template's."""
    fields = " && ".join(("c.name == t.name", *(f"c.?{field} == t.?{field}" for field in _SAME), _NO_OTHER_SOURCE))
    theirs = f"params.template.spec.?{kind}.orValue([])"
    return f"object.spec.?{kind}.orValue([]).all(c, {theirs}.exists(t, {fields}))"


def _rule(expression: str, message: str) -> k8s.admissionregistration.v1.ValidationArgs:
    return k8s.admissionregistration.v1.ValidationArgs(expression=expression, message=message, reason="Forbidden")


def _bound(
    name: str,
    scope: Scope,
    what: str,
    operations: list[str],
    rules: Sequence[k8s.admissionregistration.v1.ValidationArgs],
    *,
    kind: k8s.admissionregistration.v1.ParamKindArgs | None = None,
) -> None:
    """A policy for what the ServiceAccount of `elastic` does with pods in the namespace, and its binding."""
    api = k8s.admissionregistration.v1
    # Its name is shared by all clusters in one Kubernetes, so the namespace is in it.
    metadata = k8s.meta.v1.ObjectMetaArgs(name=f"{scope.name}-{what}", labels=scope.labels(ELASTIC))
    opts = pulumi.ResourceOptions(parent=scope.root)
    by_elastic = f"request.userInfo.username == 'system:serviceaccount:{scope.name}:{ELASTIC}'"
    pods = api.NamedRuleWithOperationsArgs(
        api_groups=[""], api_versions=["v1"], resources=["pods"], operations=operations
    )
    policy = api.ValidatingAdmissionPolicy(
        f"{name}-policy",
        metadata=metadata,
        spec=api.ValidatingAdmissionPolicySpecArgs(
            param_kind=kind,
            match_conditions=[api.MatchConditionArgs(name="elastic", expression=by_elastic)],
            match_constraints=api.MatchResourcesArgs(resource_rules=[pods]),
            validations=rules,
        ),
        opts=opts,
    )
    here = k8s.meta.v1.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": scope.name})
    templates = k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(WORKER))
    api.ValidatingAdmissionPolicyBinding(
        f"{name}-binding",
        metadata=metadata,
        spec=api.ValidatingAdmissionPolicyBindingSpecArgs(
            policy_name=policy.metadata.name,
            validation_actions=["Deny"],
            match_resources=api.MatchResourcesArgs(namespace_selector=here),
            param_ref=None
            if kind is None
            else api.ParamRefArgs(namespace=scope.name, selector=templates, parameter_not_found_action="Deny"),
        ),
        opts=opts,
    )
