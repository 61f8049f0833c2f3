"""What must hold between sections of a stack file: the table of all rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from config.cluster import Sections
from config.errors import Found, Problem
from config.rules import limits, nodes, people, services
from config.rules.nodes import nebius_problems
from config.sections.cloud import Cloud, NebiusCloud


def cross_check(valid: Mapping[str, Any], written: Mapping[str, Any]) -> list[Problem]:
    """Problems between sections. `valid` has the sections that could be read, `written` all of them as written."""
    sections = Sections(valid=valid, written=written)
    return [Problem(where, message) for rule in _RULES for where, message in _found(rule, sections)]


def _found(rule: Callable[..., Found], sections: Sections) -> Found:
    """What a rule finds. Its parameters are named after the sections that it looks at; `sections` are all of them.

    One that is wrong itself is None: only a rule that says that it takes None is asked then.
    """
    given: dict[str, Any] = {}
    for name, parameter in signature(rule).parameters.items():
        given[name] = sections if name == "sections" else sections.get(name)
        if given[name] is None and "None" not in parameter.annotation:
            return iter(())
    return rule(**given)


def _cloud(sections: Sections, cloud: Cloud) -> Found:
    if isinstance(cloud, NebiusCloud):
        yield from nebius_problems(cloud, sections)
        return
    yield from services.filesystems(sections)
    if cloud.kubeconfig is not None and cloud.context is None:
        message = "is of no use without a context; set cloud.context too (`kubectl config get-contexts` lists them)"
        yield "cloud.kubeconfig", message


_RULES: tuple[Callable[..., Found], ...] = (
    nodes.pools,
    nodes.partitions,
    people.identities,
    people.policy,
    limits.limits,
    limits.tracked,
    nodes.preemption,
    services.accounting,
    services.access,
    services.rest,
    services.network,
    services.monitoring,
    services.images,
    services.settings,
    services.plugins,
    services.mounts,
    services.state,
    nodes.elastic,
    _cloud,
)
"""In the order in which their problems are told."""
