"""Questions about permissions, tokens for service accounts, secrets (one is pytest.mark.real)."""

import pytest

from tests.conformance.objects import named
from tests.conformance.targets import Api, Json

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
READING: Json = {"verb": "get", "resource": "pods"}


async def test_whoever_may_do_everything_is_told_so(api: Api) -> None:
    spec = {"resourceAttributes": READING}
    made = await api.make(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": spec})
    assert (made["kind"], made["spec"]) == ("SelfSubjectAccessReview", spec)
    assert made["status"] == {"allowed": True}


async def test_one_may_ask_about_a_path(api: Api) -> None:
    spec = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    made = await api.make(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": spec})
    assert made["status"] == {"allowed": True}


async def test_a_question_must_be_about_something(api: Api) -> None:
    got = await api.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}})
    words = (
        '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: '
        "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    )
    assert got.refusal == (422, "Invalid", words)


async def test_one_may_ask_about_somebody_else(api: Api) -> None:
    spec = {"user": "nobody", "resourceAttributes": READING}
    made = await api.make(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    assert made["status"] == {"allowed": False}


@pytest.mark.parametrize(("path", "allowed"), [("/version", True), ("/metrics", False)])
async def test_one_may_ask_which_paths_are_open_to_somebody_else(
    api: Api, path: str, allowed: bool
) -> None:
    wanted = {"verb": "get", "path": path}
    spec = {"user": "nobody", "groups": ["system:authenticated"], "nonResourceAttributes": wanted}
    made = await api.make(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    assert made["spec"] == spec
    assert made["status"]["allowed"] is allowed


async def test_a_role_is_taken_into_account(api: Api) -> None:
    group, roles = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    await api.make(api.at("roles", group=group), {**named("r"), "rules": rules})
    subject = {"kind": "User", "name": "jane", "apiGroup": roles}
    reference = {"kind": "Role", "name": "r", "apiGroup": roles}
    binding = {**named("b"), "subjects": [subject], "roleRef": reference}
    await api.make(api.at("rolebindings", group=group), binding)

    async def may(verb: str, user: str) -> bool:
        wanted = {"verb": verb, "resource": "pods", "namespace": api.namespace}
        spec = {"user": user, "resourceAttributes": wanted}
        path = api.at("localsubjectaccessreviews", group="authorization.k8s.io/v1")
        allowed: bool = (await api.make(path, {"spec": spec}))["status"]["allowed"]
        return allowed

    # A real server learns of roles a moment later.
    for _ in range(100):
        if await may("get", "jane"):
            break
    assert await may("get", "jane")
    assert not await may("delete", "jane")
    assert not await may("get", "joe")


async def test_one_may_ask_for_all_rules(api: Api) -> None:
    path = f"{AUTHORIZATION}/selfsubjectrulesreviews"
    made = await api.make(path, {"spec": {"namespace": api.namespace}})
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert everything in made["status"]["resourceRules"]
    assert made["status"]["incomplete"] is False


async def test_rules_are_those_of_a_namespace(api: Api) -> None:
    got = await api.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {}})
    assert got.refusal == (400, "BadRequest", "no namespace on request")


async def test_one_may_ask_who_one_is(api: Api) -> None:
    made = await api.make(f"{AUTHENTICATION}/selfsubjectreviews", {})
    assert made["status"]["userInfo"]["groups"] == ["system:masters", "system:authenticated"]


async def test_nothing_of_that_is_kept(api: Api) -> None:
    assert (await api.get(f"{AUTHORIZATION}/selfsubjectaccessreviews")).status == 405


async def test_a_service_account_gets_a_token(api: Api) -> None:
    await api.make(api.at("serviceaccounts"), named("robot"))
    path = api.at("serviceaccounts", "robot", "token")
    made = await api.make(path, {"spec": {"expirationSeconds": 600}})
    assert (made["kind"], made["metadata"]["name"]) == ("TokenRequest", "robot")
    assert made["spec"]["expirationSeconds"] == 600
    assert made["status"]["expirationTimestamp"]
    review = {"spec": {"token": made["status"]["token"]}}
    known = (await api.make(f"{AUTHENTICATION}/tokenreviews", review))["status"]
    assert known["authenticated"] is True
    assert known["user"]["username"] == f"system:serviceaccount:{api.namespace}:robot"


async def test_there_is_no_token_for_nobody(api: Api) -> None:
    got = await api.post(api.at("serviceaccounts", "nope", "token"), {})
    assert got.refusal == (404, "NotFound", 'serviceaccounts "nope" not found')


async def test_a_made_up_token_is_nobodys(api: Api) -> None:
    review = {"spec": {"token": "made-up"}}
    made = await api.make(f"{AUTHENTICATION}/tokenreviews", review)
    assert made["status"] == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.kubectl
@pytest.mark.differs("no-protobuf")
async def test_kubectl_auth_can_i(api: Api) -> None:
    assert await api.kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    assert "[*]" in await api.kubectl("auth", "can-i", "--list")


@pytest.mark.kubectl
@pytest.mark.differs("no-protobuf")
async def test_kubectl_create_token(api: Api) -> None:
    await api.make(api.at("serviceaccounts"), named("robot"))
    assert (await api.kubectl("create", "token", "robot")).count(".") == 2


# Secrets


async def test_a_secret_keeps_what_was_text_as_base64(api: Api) -> None:
    made = await api.make(api.at("secrets"), {**named("a"), "stringData": {"x": "y"}})
    assert (made["data"], made["type"]) == ({"x": "eQ=="}, "Opaque")
    changed = await api.change(api.at("secrets", "a"), {"stringData": {"z": "y"}})
    assert changed["data"] == {"x": "eQ==", "z": "eQ=="}


async def test_the_type_of_a_secret_never_changes(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.patch(api.at("secrets", "a"), {"type": "other"})
    words = 'Secret "a" is invalid: type: Invalid value: "other": field is immutable'
    assert got.refusal == (422, "Invalid", words)


async def test_what_is_no_base64_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), {**named("a"), "data": {"x": "!!"}})
    words = (
        'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
    )
    assert got.refusal == (400, "BadRequest", words)
