"""The Kubernetes manifests, as kubectl renders them."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import kubernetes_validate
import pytest

from gateway.config import load_config
from tests.deploy.kubectl import DEPLOY, find_kubectl, render

KUBERNETES_VERSION = "1.34"
EVERY_FOLDER = ("base", "overlays/vllm", "overlays/replicas")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kubectl")


def one(manifests: list[dict], kind: str, name: str) -> dict:
    """The manifest of this kind and name (generated names lose their hash)."""
    found = [
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and re.sub(r"-[0-9a-z]{10}$", "", manifest["metadata"]["name"]) == name
    ]
    assert len(found) == 1, (kind, name, [(m["kind"], m["metadata"]["name"]) for m in manifests])
    return found[0]


def pod_of(manifest: dict) -> dict:
    return manifest["spec"]["template"]["spec"]


def environ_of_secrets(tmp_path: Path, text: str) -> str:
    """The configuration with its secret files moved to where this test has some."""
    for name in ("salt", "keys"):
        (tmp_path / name).mkdir()
    (tmp_path / "salt" / "k1").write_text(secrets.token_hex(32))
    (tmp_path / "keys" / "example").write_text("sha256:" + "ab" * 32 + "\n")
    return text.replace("/etc/homing", str(tmp_path))


@pytest.mark.parametrize("folder", EVERY_FOLDER)
def test_every_manifest_fits_the_schema_of_its_kind(folder, cache):
    """A field that Kubernetes does not know, or of the wrong type, is refused here and not in the cluster."""
    manifests = render(folder, cache)
    assert len(manifests) >= 7
    for manifest in manifests:
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


def test_the_schema_check_can_fail(cache):
    """A misspelt field in the real Deployment is found, so the check above means something."""
    deployment = one(render("base", cache), "Deployment", "homing")
    pod_of(deployment)["terminationGracePeriodSecond"] = 5
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES_VERSION, strict=True)


def test_the_kubectl_from_the_wheel_renders_the_same(cache, monkeypatch):
    """A machine without kubectl gets the same manifests."""
    before = render("base", cache)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_kubectl(cache).parent == cache
    assert render("base", cache) == before


@pytest.mark.parametrize("folder", EVERY_FOLDER)
def test_the_gateway_accepts_the_configuration_it_is_deployed_with(folder, cache, tmp_path):
    """The ConfigMap's file loads through the gateway's own reader, unknown fields refused."""
    text = one(render(folder, cache), "ConfigMap", "homing-config")["data"]["homing.yaml"]
    path = tmp_path / "homing.yaml"
    path.write_text(environ_of_secrets(tmp_path, text))
    config = load_config(path, {})
    assert config.listen.admin_host == "0.0.0.0"
    assert set(config.tenants) == {"example"}


@pytest.mark.parametrize("folder", EVERY_FOLDER)
def test_configuration_and_secrets_are_mounted_as_directories(folder, cache):
    """A subPath mount never sees an edit of its ConfigMap."""
    pod = pod_of(one(render(folder, cache), "Deployment", "homing"))
    mounts = pod["containers"][0]["volumeMounts"]
    assert {mount["name"] for mount in mounts} == {"config", "salt", "keys", "tmp"}
    assert all("subPath" not in mount for mount in mounts)


@pytest.mark.parametrize("folder", EVERY_FOLDER)
def test_the_gateway_runs_under_the_restricted_pod_security_standard(folder, cache):
    """Not root, nothing writable but a bounded temporary directory, no capabilities, no token."""
    pod = pod_of(one(render(folder, cache), "Deployment", "homing"))
    container = pod["containers"][0]["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["readOnlyRootFilesystem"] is True
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def test_the_role_reads_endpoint_slices_and_nothing_else(cache):
    """Least privilege: three verbs on one resource of one namespace."""
    role = one(render("base", cache), "Role", "homing")
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]


def test_a_pod_has_time_to_drain_before_it_is_killed(cache, tmp_path):
    """The grace period covers the wait for the endpoint to vanish and the whole drain the gateway is configured for."""
    manifests = render("base", cache)
    pod = pod_of(one(manifests, "Deployment", "homing"))
    path = tmp_path / "homing.yaml"
    path.write_text(environ_of_secrets(tmp_path, one(manifests, "ConfigMap", "homing-config")["data"]["homing.yaml"]))
    timeouts = load_config(path, {}).timeouts
    wait_seconds = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain_seconds = timeouts.drain_delay_seconds + timeouts.drain_seconds
    assert wait_seconds + drain_seconds <= pod["terminationGracePeriodSeconds"] - 10


def test_probes_ask_the_admin_port(cache):
    """Readiness and liveness are asked where tenants cannot reach."""
    container = pod_of(one(render("base", cache), "Deployment", "homing"))["containers"][0]
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {probe["port"] for probe in asked.values()} == {"admin"}
    assert asked["livenessProbe"]["path"] == "/livez"
    assert asked["readinessProbe"]["path"] == asked["startupProbe"]["path"] == "/readyz"


def test_the_workers_report_cached_tokens_and_keep_their_names(cache):
    """vLLM hides cached tokens unless asked, and a Deployment's pods would move on the ring at every restart."""
    manifests = render("overlays/vllm", cache)
    worker = one(manifests, "StatefulSet", "vllm")
    arguments = pod_of(worker)["containers"][0]["args"]
    assert "--enable-prompt-tokens-details" in arguments
    assert "--enable-prefix-caching" in arguments
    config = one(manifests, "ConfigMap", "homing-config")["data"]["homing.yaml"]
    names = [f"vllm-{number}.vllm:8000" for number in range(worker["spec"]["replicas"])]
    assert all(name in config for name in names)


def test_every_selector_finds_a_pod_of_its_own_manifest(cache):
    """Services, budgets and spread rules speak of labels that some pod template carries."""
    manifests = render("overlays/replicas", cache)
    owners = [m for m in manifests if m["kind"] in ("Deployment", "StatefulSet")]
    templates = [m["spec"]["template"]["metadata"]["labels"] for m in owners]
    selectors = [m["spec"]["selector"] for m in manifests if m["kind"] == "Service"]
    selectors += [m["spec"]["selector"]["matchLabels"] for m in manifests if m["kind"] == "PodDisruptionBudget"]
    selectors += [m["spec"]["podSelector"]["matchLabels"] for m in manifests if m["kind"] == "NetworkPolicy"]
    assert len(selectors) == 6
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in templates), selector


def test_the_folder_that_is_rendered_is_the_one_that_is_shipped():
    """The paths in the README and the Makefile exist."""
    for folder in EVERY_FOLDER:
        assert (DEPLOY / folder / "kustomization.yaml").is_file()


def test_replicas_find_their_redis_and_nobody_else_does(cache, tmp_path):
    """The URL in the configuration is the Service's; the policy lets gateways in and Redis nowhere."""
    manifests = render("overlays/replicas", cache)
    path = tmp_path / "homing.yaml"
    path.write_text(environ_of_secrets(tmp_path, one(manifests, "ConfigMap", "homing-config")["data"]["homing.yaml"]))
    redis = load_config(path, {}).redis
    service = one(manifests, "Service", "homing-redis")
    assert redis is not None
    assert redis.url == f"redis://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    policy = one(manifests, "NetworkPolicy", "homing-redis")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    gateway = one(manifests, "Deployment", "homing")["spec"]["template"]["metadata"]["labels"]
    allowed = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed.items() <= gateway.items()


def test_redis_keeps_nothing_and_is_bounded(cache):
    """No disk, a bound on its memory below the container's, and the restricted pod security standard."""
    pod = pod_of(one(render("overlays/replicas", cache), "Deployment", "homing-redis"))
    container = pod["containers"][0]
    assert container["args"][:4] == ["--save", "", "--appendonly", "no"]
    assert container["args"][4:6] == ["--maxmemory", "256mb"]
    assert container["resources"]["limits"]["memory"] == "320Mi"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
