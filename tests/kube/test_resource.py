from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube.resource import LEASES, NODES, PODS, Resource

SCALES = Resource("apps", "v1", "statefulsets", "StatefulSet")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path(namespace="ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path(namespace="ns", name="web"), "/api/v1/namespaces/ns/pods/web"),
        (NODES.path(name="n1"), "/api/v1/nodes/n1"),
        (LEASES.path(), "/apis/coordination.k8s.io/v1/leases"),
        (
            SCALES.path(namespace="ns", name="db", subresource="scale"),
            "/apis/apps/v1/namespaces/ns/statefulsets/db/scale",
        ),
    ],
)
def test_the_path_follows_from_group_scope_and_name(path: str, expected: str) -> None:
    assert path == expected


def test_a_namespace_does_not_apply_to_what_has_none() -> None:
    assert NODES.path(namespace="ns", name="n1") == "/api/v1/nodes/n1"


def test_what_people_and_objects_call_it() -> None:
    assert (PODS.label, PODS.api_version) == ("pods", "v1")
    assert LEASES.label == "leases.coordination.k8s.io"
    assert LEASES.api_version == "coordination.k8s.io/v1"


@pytest.mark.parametrize("name", ["", ".", "..", "web/status", "web%2Fstatus", "/", "%"])
def test_what_can_be_nobodys_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of one of the pods"):
        PODS.path(namespace="ns", name=name)
    with pytest.raises(ValueError, match="is not the name of a namespace"):
        PODS.path(namespace=name, name="web")
    with pytest.raises(ValueError, match="is not the name of a subresource of pods"):
        PODS.path(namespace="ns", name="web", subresource=name)


def test_a_name_without_a_namespace_is_refused_where_there_must_be_one() -> None:
    with pytest.raises(ValueError, match="pods 'web' needs a namespace"):
        PODS.path(name="web")


def test_a_subresource_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="the eviction of pods needs a name"):
        PODS.path(namespace="ns", subresource="eviction")


@settings(deadline=None)
@given(name=st.text(st.characters(exclude_categories=["Cs"])), namespace=st.text(min_size=1))
def test_no_name_can_leave_its_place_in_the_path(name: str, namespace: str) -> None:
    try:
        path = PODS.path(namespace=namespace, name=name)
    except ValueError:
        return
    assert path.isascii()
    assert not set(path) & set(" ?#\\\n")
    # An API server unquotes first and splits then.
    assert unquote(path).split("/") == ["", "api", "v1", "namespaces", namespace, "pods", name]
