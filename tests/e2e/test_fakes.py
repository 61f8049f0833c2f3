"""The stand-ins for Kubernetes are asked what a real API server is asked, and have to say the same."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import pytest
import yaml

from cli.kubectl.client import Kubectl, connect
from config import load_config
from slurm.local_cluster import kubeconfig
from tests import stacks
from tests.fakes.kubectl import FakeCluster
from tests.fakes.kubernetes import FakeKubernetes

NAMESPACE = "-".join(filter(None, ("fakes", os.environ.get("PYTEST_XDIST_WORKER", ""))))
NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = f"{NAMESPACES}/{NAMESPACE}/configmaps"
PODS = f"{NAMESPACES}/{NAMESPACE}/pods"
OURS = "labelSelector=example.com/fakes"
SHORT = "application/json;as=PartialObjectMetadata"
SHORT_GROUP = ";g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

Said = list[Any]


@dataclass
class Asked:
    """An API server, real or not."""

    connect: Callable[[], http.client.HTTPConnection]

    def ask(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer."""
        connection = self.connect()
        try:
            data = json.dumps(body) if body is not None else None
            sent = {"Content-Type": kind, **headers}
            connection.request(method, path, body=data, headers=sent)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def events(self, path: str, count: int) -> list[dict[str, Any]]:
        """The first events of a watch."""
        connection = self.connect()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            assert response.status == 200
            found: list[dict[str, Any]] = []
            while len(found) < count and (line := response.readline()):
                event = json.loads(line)
                found += [event] if event["type"] != "BOOKMARK" else []
            return found
        finally:
            connection.close()


@pytest.fixture(scope="module")
def real(local_kubernetes: None) -> Iterator[Asked]:
    """The local cluster's, with a namespace for the tests."""
    found = yaml.safe_load(kubeconfig().read_text())
    user, cluster = found["users"][0]["user"], found["clusters"][0]["cluster"]
    authority = _decoded(cluster["certificate-authority-data"])
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile("w") as pair:
        pair.write(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    url = urlparse(cluster["server"])

    def reach() -> http.client.HTTPConnection:
        return http.client.HTTPSConnection(str(url.hostname), url.port, timeout=20, context=context)

    asked = Asked(connect=reach)
    created, _ = asked.ask("POST", NAMESPACES, {"kind": "Namespace", "metadata": {"name": NAMESPACE}})
    assert created == 201
    yield asked
    asked.ask("DELETE", f"{NAMESPACES}/{NAMESPACE}")


@pytest.fixture
def fake() -> Iterator[Asked]:
    """The stand-in."""
    server = FakeKubernetes()
    server.put(NAMESPACES, NAMESPACE)
    yield Asked(connect=lambda: http.client.HTTPConnection("127.0.0.1", server.port, timeout=20))
    server.close()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def config_map(name: str, **labels: str) -> dict[str, Any]:
    named = {f"example.com/{key}": value for key, value in {"fakes": "", **labels}.items()}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": named}, "data": {"a": "1"}}


def pod(name: str, node: str | None = None) -> dict[str, Any]:
    """A pod that never starts."""
    never = {"nodeName": node} if node else {"nodeSelector": {"example.com/nowhere": ""}}
    container = {"name": "main", "image": "example.com/none"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {**never, "containers": [container]}}


def brief(answer: tuple[int, dict[str, Any]]) -> Said:
    """What a client goes by."""
    status, body = answer
    if body["kind"] == "Status":
        return [status, body["status"], body.get("reason"), body.get("code", status), body.get("message")]
    metadata = body["metadata"]
    return [status, body["kind"], body["apiVersion"], metadata["name"], metadata.get("labels"), body.get("data")]


def version(answer: tuple[int, dict[str, Any]]) -> str:
    return str(answer[1]["metadata"]["resourceVersion"])


def objects(asked: Asked) -> Said:
    """From the making of an object to its end, and what is refused meanwhile."""
    one = f"{CONFIG_MAPS}/one"
    made = asked.ask("POST", CONFIG_MAPS, config_map("one"))
    changed = asked.ask("PATCH", one, {"data": {"a": None, "b": "2"}}, kind=MERGE)
    same = asked.ask("PATCH", one, {"data": {"b": "2"}}, kind=MERGE)
    old = {"metadata": {"resourceVersion": version(made)}, "data": {"b": "3"}}
    new = {"metadata": {"resourceVersion": version(changed)}, "data": {"b": "3"}}
    told = [made, changed, same, asked.ask("POST", CONFIG_MAPS, config_map("one"))]
    told += [asked.ask("PATCH", one, change, kind=MERGE) for change in (old, new)]
    told += [asked.ask("GET", path) for path in (one, f"{CONFIG_MAPS}/none", "/api/v1/nonsense")]
    wrong_uid = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    refused = asked.ask("DELETE", one, wrong_uid)
    gone = [brief(asked.ask(method, one)) for method in ("DELETE", "DELETE", "GET")]
    return [*map(brief, told), version(same) == version(changed) != version(made), brief(refused)[:3], gone]


def lists(asked: Asked) -> Said:
    """All of a kind, some of it, and little of each."""
    for name, more in (("la", {}), ("lb", {"side": "left"}), ("lc", {"side": "right"})):
        asked.ask("POST", CONFIG_MAPS, config_map(name, **more))
    pages = [asked.ask("GET", f"{CONFIG_MAPS}?{OURS}&limit=2")]
    pages += [asked.ask("GET", f"{CONFIG_MAPS}?{OURS}&limit=2&continue={pages[0][1]['metadata']['continue']}")]
    selected = [f"{OURS},example.com/side", f"{OURS},example.com/side=left", f"{OURS}&fieldSelector=metadata.name%3Dlc"]
    told = [*pages, *(asked.ask("GET", f"{CONFIG_MAPS}?{query}") for query in selected)]
    told.append(asked.ask("GET", f"{CONFIG_MAPS}?{OURS}", Accept=f"{SHORT}List{SHORT_GROUP}"))
    shapes = [
        [status, found["kind"], found["apiVersion"], "continue" in found["metadata"], version((status, found)) > ""]
        + [[item["metadata"]["name"], item.get("kind"), item.get("data")] for item in found["items"]]
        for status, found in told
    ]
    for name in ("la", "lb", "lc"):
        asked.ask("DELETE", f"{CONFIG_MAPS}/{name}")
    return shapes


def watches(asked: Asked) -> Said:
    """What happened since a list: also what came to be selected, or is not any more."""
    where = f"{CONFIG_MAPS}/watched"
    query = "labelSelector=example.com/side%3Dleft"
    since = version(asked.ask("GET", f"{CONFIG_MAPS}?{query}"))
    asked.ask("POST", CONFIG_MAPS, config_map("watched", side="left"))
    asked.ask("PATCH", where, {"data": {"a": "2"}}, kind=MERGE)
    asked.ask("PATCH", where, {"metadata": {"labels": {"example.com/side": "right"}}}, kind=MERGE)
    asked.ask("PATCH", where, {"data": {"a": "3"}}, kind=MERGE)
    asked.ask("PATCH", where, {"metadata": {"labels": {"example.com/side": "left"}}}, kind=MERGE)
    asked.ask("DELETE", where)
    path = f"{CONFIG_MAPS}?watch=true&{query}&resourceVersion={since}&allowWatchBookmarks=true&timeoutSeconds=20"
    events = asked.events(path, 5)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    told = [[event["type"], event["object"]["kind"], event["object"].get("data")] for event in events]
    return [told, versions == sorted(set(versions)), versions[0] > int(since)]


def pods(asked: Asked) -> Said:
    """Deletions of pods with and without a machine."""
    for made in (pod("free"), pod("bound", "nowhere")):
        asked.ask("POST", PODS, made)
    told = [brief(asked.ask(method, f"{PODS}/free"))[:4] for method in ("DELETE", "GET")]
    deleted = asked.ask("DELETE", f"{PODS}/bound")
    stays = asked.ask("GET", f"{PODS}/bound")
    marks = ["deletionTimestamp" in answer[1]["metadata"] for answer in (deleted, stays)]
    asked.ask("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 0})
    return [*told, brief(deleted)[:2], brief(stays)[:2], marks]


def conditions(asked: Asked) -> Said:
    """Conditions are merged by their type, and only by way of the status."""
    asked.ask("POST", PODS, pod("sick"))

    def change(path: str, status: str, name: str) -> tuple[int, dict[str, Any]]:
        one = {"type": f"example.com/{name}", "status": status}
        return asked.ask("PATCH", path, {"status": {"conditions": [one]}}, kind=STRATEGIC)

    told = [
        change(f"{PODS}/sick/status", "True", "one"),
        change(f"{PODS}/sick/status", "True", "two"),
        change(f"{PODS}/sick/status", "False", "one"),
        change(f"{PODS}/sick", "Unknown", "two"),
        change(f"{PODS}/none/status", "True", "one"),
    ]
    asked.ask("DELETE", f"{PODS}/sick")
    return [
        [status, *sorted((item["type"], item["status"]) for item in _conditions(found) if "example" in item["type"])]
        for status, found in told
    ]


def _conditions(found: dict[str, Any]) -> list[dict[str, Any]]:
    status = found.get("status")
    return list(status.get("conditions", [])) if isinstance(status, dict) else []


@pytest.mark.parametrize("story", [objects, lists, watches, pods, conditions], ids=lambda story: story.__name__)
def test_an_api_server_that_is_played_says_what_a_real_one_says(
    real: Asked, fake: Asked, story: Callable[[Asked], Said]
) -> None:
    assert story(fake) == story(real)


def test_kubectl_that_is_played_lists_what_the_real_one_lists(real: Asked) -> None:
    names = ("ka", "kb")
    there = [config_map(name) for name in names]
    for item in there:
        real.ask("POST", CONFIG_MAPS, item)
    kubectls: list[Kubectl] = [connect(load_config(stacks.dev()).cloud), FakeCluster(items_there=there)]
    wanted = json.dumps({"kind": "List", "apiVersion": "v1", "items": [there[0], config_map("none")]})

    def told(kubectl: Kubectl) -> Said:
        place = ("-n", NAMESPACE)
        kinds = kubectl.items("configmap,secret", *place, "-l", "example.com/fakes")
        one = kubectl.run("get", "--ignore-not-found", "-f", "-", "-o", "json", *place, stdin=wanted)
        found = json.loads(one.stdout)
        return [[item["metadata"]["name"] for item in items] for items in (kinds, found.get("items", [found]))] + [
            kubectl.items("secret", *place, "-l", "example.com/fakes")
        ]

    assert told(kubectls[0]) == told(kubectls[1])
    for name in names:
        real.ask("DELETE", f"{CONFIG_MAPS}/{name}")
