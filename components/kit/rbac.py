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


def allow(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    account: k8s.core.v1.ServiceAccount,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    opts: pulumi.ResourceOptions,
) -> None:
    """Let an account do what the rules say, in the namespace."""
    role = k8s.rbac.v1.Role(f"{name}-role", metadata=metadata, rules=rules, opts=opts)
    k8s.rbac.v1.RoleBinding(
        f"{name}-role-binding",
        metadata=metadata,
        role_ref=_reference("Role", role.metadata.name),
        subjects=[_subject(account)],
        opts=opts,
    )


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
    opts = scope.outside.merge(pulumi.ResourceOptions(parent=parent))
    role = k8s.rbac.v1.ClusterRole(f"{name}-cluster-role", metadata=metadata, rules=rules, opts=opts)
    k8s.rbac.v1.ClusterRoleBinding(
        f"{name}-cluster-role-binding",
        metadata=metadata,
        role_ref=_reference("ClusterRole", role.metadata.name),
        subjects=[_subject(account)],
        opts=opts,
    )


def _reference(kind: str, name: pulumi.Input[str]) -> k8s.rbac.v1.RoleRefArgs:
    return k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=name)


def _subject(account: k8s.core.v1.ServiceAccount) -> k8s.rbac.v1.SubjectArgs:
    name, namespace = account.metadata.name, account.metadata.namespace
    return k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=name, namespace=namespace)
