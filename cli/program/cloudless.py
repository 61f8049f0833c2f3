"""The Kubernetes objects of a stack that makes its cloud too, without that cloud: to look at them, and for GitOps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cli.errors import Failure
from cli.program.manifests import cloud_resources
from cli.program.recording import Recording, Registration
from cli.program.values import leaves, reveal

_ANNOTATIONS = ("metadata", "annotations")


def without_cloud(recording: Recording) -> tuple[Recording, list[str]]:
    """The recording without the resources that only Pulumi can make, and a line for each thing that is left out.

    An annotation whose value only an update can tell is left out of its object. Raises Failure if anything else is not
    known without one.
    """
    counts = cloud_resources(recording)
    left = [f"not among them are {counts.total()} cloud resources, which `pulumi up` makes: "] if counts else []
    left = [line + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) for line in left]
    made = {item.urn: item.id for item in recording if item.type.startswith("nebius:") and item.id}
    kept = []
    for item in recording:
        if cloud_resources([item]):
            continue
        unknown = [path for path in _computed(item, made) if path]
        for path in unknown:
            if path[:-1] != _ANNOTATIONS:
                raise Failure(f"{item.type} {item.name}: {'.'.join(path)} is only known after an update")
            left.append(f"{item.inputs['kind']} {item.name} lacks the annotation {path[-1]}: an update finds its value")
        kept.append(_without(item, {path[-1] for path in unknown}) if unknown else item)
    return Recording(registrations=kept, finished=recording.finished, outputs=recording.outputs), left


def _computed(item: Registration, made: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """Where the inputs have ids of cloud resources, which are stand-ins here."""
    if not item.type.startswith("kubernetes:"):
        return
    for name, urns in item.sources.items():
        ids = {made[urn] for urn in urns if urn in made}
        for path, leaf in leaves(reveal(item.inputs.get(name)), (name,)):
            if isinstance(leaf, str) and any(id_ in leaf for id_ in ids):
                yield path


def _without(item: Registration, annotations: set[str]) -> Registration:
    metadata = item.inputs["metadata"]
    left = {key: value for key, value in metadata["annotations"].items() if key not in annotations}
    return replace(item, inputs={**item.inputs, "metadata": {**metadata, "annotations": left}})
