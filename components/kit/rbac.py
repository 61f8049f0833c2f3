"""Rights of a program that asks Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kit.context import Scope


def rule(resource: str, *verbs: str, group: str = "", only: str | None = None) -> k8s.rbac.v1.PolicyRuleArgs:
    """What may be done with one kind of objects, or with the one that is named `only`."""
    names = None if only is None else [only]
    return k8s.rbac.v1.PolicyRuleArgs(api_groups=[group], resources=[resource], resource_names=names, verbs=list(verbs))


def account(
    name: str,
    scope: Scope,
    component: str,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    opts: pulumi.ResourceOptions,
) -> k8s.core.v1.ServiceAccount:
    """An account of a component's own, with rights in the namespace."""
    metadata = scope.metadata(component, component)
    made = k8s.core.v1.ServiceAccount(f"{name}-account", metadata=metadata, opts=opts)
    allow(name, metadata, made, rules, opts)
    return made


def allow(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    account: k8s.core.v1.ServiceAccount,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    opts: pulumi.ResourceOptions,
) -> None:
    """Let an account do what the rules say, in the namespace."""
    role, binding = k8s.rbac.v1.Role, k8s.rbac.v1.RoleBinding
    _grant(role, binding, f"{name}-role", account, rules, metadata=metadata, opts=opts)


def allow_everywhere(
    name: str,
    scope: Scope,
    component: str,
    account: k8s.core.v1.ServiceAccount,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    *,
    parent: pulumi.Resource,
) -> None:
    """Let an account do it with what is in no namespace, above all with Kubernetes nodes."""
    # Names of cluster roles are shared by all clusters in one Kubernetes, so the namespace is in them.
    metadata = k8s.meta.v1.ObjectMetaArgs(name=f"{scope.name}-{component}", labels=scope.labels(component))
    opts = pulumi.ResourceOptions(parent=parent)
    role, binding = k8s.rbac.v1.ClusterRole, k8s.rbac.v1.ClusterRoleBinding
    _grant(role, binding, f"{name}-cluster-role", account, rules, metadata=metadata, opts=opts)


def _grant(
    role_class: type[k8s.rbac.v1.Role | k8s.rbac.v1.ClusterRole],
    binding_class: type[k8s.rbac.v1.RoleBinding | k8s.rbac.v1.ClusterRoleBinding],
    name: str,
    account: k8s.core.v1.ServiceAccount,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    *,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    opts: pulumi.ResourceOptions,
) -> None:
    role, who = role_class(name, metadata=metadata, rules=rules, opts=opts), account.metadata
    reference = k8s.rbac.v1.RoleRefArgs(
        api_group="rbac.authorization.k8s.io", kind=role_class.__name__, name=role.metadata.name
    )
    subject = k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=who.name, namespace=who.namespace)
    binding_class(f"{name}-binding", metadata=metadata, role_ref=reference, subjects=[subject], opts=opts)
