"""The manifests as files: complete, ours by label, in step with the code, without registries."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

from backstay import __version__
from backstay.apis.definitions import definitions
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.cli.documents import as_yaml
from backstay.cli.manifests import manifests
from backstay.cli.run import command as run
from backstay.model.labels import COMPONENT
from backstay.record.endpoints import CLOSED, OPEN
from backstay.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BACKSTAY = Path(sys.executable).parent / "backstay"


def only(kind: str, name: str = "backstay-controller") -> dict[str, Any]:
    (found,) = [m for m in manifests() if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = only("Deployment")["spec"]["template"]["spec"]
    return spec


def test_the_definitions_are_what_the_code_says() -> None:
    expected = as_yaml(definitions())
    assert (DEPLOY / "crds.yaml").read_text() == expected, "backstay crds > deploy/crds.yaml"


def test_the_definition_of_maintenances_is_what_the_code_says() -> None:
    expected = as_yaml([maintenance_definition()])
    written = (DEPLOY / "maintenance-crd.yaml").read_text()
    assert written == expected, "backstay crds --maintenance > deploy/maintenance-crd.yaml"


def test_the_kustomization_leaves_no_file_out() -> None:
    listed = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
    apart = {
        "kustomization.yaml", "prometheus-rule.yaml", "linstor.yaml", "linstor-rights.yaml",
        "maintenance-crd.yaml",
    }  # fmt: skip
    present = {path.name for path in DEPLOY.glob("*.yaml")} - apart
    assert sorted(listed) == sorted(present)


@pytest.mark.parametrize(
    "document", manifests(), ids=lambda m: f"{m['kind']}-{m['metadata']['name']}"
)
def test_everything_carries_our_label(document: dict[str, Any]) -> None:
    assert document["metadata"]["labels"][COMPONENT] == "backstay"


def test_no_role_has_a_wildcard_or_reaches_for_secrets() -> None:
    for document in manifests():
        for rule in document.get("rules", ()):
            words = {word for value in rule.values() for word in value}
            assert not [word for word in words if "*" in word]
            assert "secrets" not in words
            assert words.isdisjoint({"escalate", "bind", "impersonate", "deletecollection"})


def test_only_the_confirmer_may_create_confirmations() -> None:
    may = {
        document["metadata"]["name"]
        for document in manifests()
        for rule in document.get("rules", ())
        if "deathconfirmations" in rule.get("resources", ())
        and {"create", "delete"} & {*rule["verbs"]}
    }
    assert may == {"backstay-confirmer"}


def test_the_metrics_reader_may_get_what_the_controller_keeps_closed_and_nothing_else() -> None:
    (rule,) = only("ClusterRole", "backstay-metrics-reader")["rules"]
    assert rule == {"nonResourceURLs": [*CLOSED], "verbs": ["get"]}


def test_probes_ask_for_what_needs_no_token() -> None:
    (container,) = pod()["containers"]
    asked = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness")}
    assert asked == {*OPEN}


def test_the_names_are_those_that_the_controller_expects() -> None:
    settings = Settings(identity="me")
    assert only("Deployment")["metadata"]["namespace"] == settings.namespace
    (bound,) = [
        rule["resourceNames"]
        for document in manifests()
        if document["kind"] == "Role" and document["metadata"]["namespace"] == settings.namespace
        for rule in document["rules"]
        if "resourceNames" in rule
    ]
    assert bound == [settings.lease]


def test_the_image_is_of_this_version_and_names_no_registry() -> None:
    (container,) = pod()["containers"]
    assert container["image"] == f"backstay:{__version__}"


def test_the_controller_has_no_more_rights_on_its_node_than_it_needs() -> None:
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_controller_is_started_as_its_command_expects() -> None:
    (container,) = pod()["containers"]
    name, *arguments = container["args"]
    given = run.make_context(name, arguments).params
    (port,) = container["ports"]
    assert given["metrics_address"] == f"0.0.0.0:{port['containerPort']}"
    (mount,) = container["volumeMounts"]
    assert given["recorder"] == mount["mountPath"]


def test_two_controllers_on_two_nodes_know_where_they_are() -> None:
    """Otherwise no death could ever be presumed."""
    (container,) = pod()["containers"]
    name, *arguments = container["args"]
    assert run.make_context(name, arguments).params["node_name"] == "$(NODE_NAME)"
    told = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert told == {"NODE_NAME": "spec.nodeName"}
    (apart,) = pod()["topologySpreadConstraints"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["whenUnsatisfiable"] == "DoNotSchedule"


def test_a_replica_leaves_a_dead_node_soon() -> None:
    seconds = {
        toleration["key"]: toleration["tolerationSeconds"]
        for toleration in pod()["tolerations"]
        if toleration["effect"] == "NoExecute"
    }
    assert {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"} == seconds.keys()
    assert max(seconds.values()) <= 15


def test_the_container_recipe_installs_nothing_without_a_hash() -> None:
    recipe = (DEPLOY / "Containerfile").read_text()
    installs = [line for line in re.split(r"(?<!\\)\n", recipe) if "pip install" in line]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line
    images = re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)
    assert images
    assert not [image for image in images if "/" in image]


def printed(*arguments: str) -> str:
    said = subprocess.run([BACKSTAY, *arguments], capture_output=True, text=True, timeout=30)
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_backstay_crds_prints_the_file() -> None:
    assert printed("crds") == (DEPLOY / "crds.yaml").read_text()


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_backstay_manifests_prints_all_of_them(output: str) -> None:
    documents = list(yaml.safe_load_all(printed("manifests", "-o", output)))
    assert (documents[0]["items"] if output == "json" else documents) == manifests()


def test_backstay_manifests_takes_an_image_of_your_own() -> None:
    said = printed("manifests", "--image", "registry.example:5000/ha/backstay@sha256:0123")
    (image,) = re.findall(r"image: (\S+)", said)
    assert image == "registry.example:5000/ha/backstay@sha256:0123"


def test_backstay_manifests_refuses_what_is_no_image() -> None:
    said = subprocess.run(
        [BACKSTAY, "manifests", "--image", "a\n  evil: yes"], capture_output=True, text=True
    )
    assert said.returncode == 1
    assert "is not the name of an image" in said.stderr


def test_the_wheel_brings_the_manifests_along(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in ZipFile(wheel).namelist() if name.startswith("backstay/deploy/")}
    assert packed >= {f"backstay/deploy/{path.name}" for path in DEPLOY.glob("*.yaml")}
