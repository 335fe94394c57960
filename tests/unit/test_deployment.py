"""The files in deploy/: each is valid to a real validator, and they agree with each other and with the product."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from ringfence.confinement.linux import seccomp_json
from ringfence.manager.policing import read_policy

pytestmark = pytest.mark.req("B8")

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OBJECTS = [item for path in MANIFESTS for item in yaml.safe_load_all(path.read_text())]


def the(kind: str) -> dict[str, Any]:
    (found,) = (item for item in OBJECTS if item["kind"] == kind)
    assert isinstance(found, dict)
    return found


def pod() -> dict[str, Any]:
    found = the("Deployment")["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def compose(name: str) -> str:
    text = (DEPLOY / name).read_text()
    given = {"RINGFENCE_DOCKER_SOCKET": "/run/user/1000/docker.sock", "RINGFENCE_DATA": "/home/me/ringfence"}
    return re.sub(r"\$\{(RINGFENCE_DOCKER_SOCKET|RINGFENCE_DATA)(:\?[^}]*)?\}", lambda found: given[found[1]], text)


def service() -> dict[str, Any]:
    found = yaml.safe_load(compose("compose.yaml"))["services"]["manager"]
    assert isinstance(found, dict)
    return found


# --- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", OBJECTS, ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_kubernetes_knows_every_key(item: dict[str, Any]) -> None:
    kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)


def test_the_validator_refuses_a_key_that_kubernetes_does_not_know() -> None:
    wrong = yaml.safe_load(
        yaml.safe_dump(the("Deployment")).replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
    )

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_all_that_is_asked_for_is_there() -> None:
    assert {item["kind"] for item in OBJECTS} == {
        *("Namespace", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "NetworkPolicy"),
        *("PersistentVolumeClaim", "Deployment", "Service"),
    }


def test_everything_is_in_the_namespace_that_enforces_the_restricted_standard() -> None:
    namespace = the("Namespace")

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {item["metadata"]["namespace"] for item in OBJECTS if item is not namespace} == {
        namespace["metadata"]["name"]
    }


def breaches(spec: dict[str, Any]) -> set[str]:
    """What the restricted Pod Security Standard would refuse, point by point."""
    whole = spec.get("securityContext", {})
    found = {key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)}
    allowed_volumes = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
    allowed_volumes |= {"secret", "name"}
    found |= {key for volume in spec.get("volumes", ()) for key in volume if key not in allowed_volumes}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        own = container.get("securityContext", {})
        both = whole | own
        if own.get("privileged"):
            found.add("privileged")
        if own.get("allowPrivilegeEscalation") is not False:
            found.add("allowPrivilegeEscalation")
        if not both.get("runAsNonRoot") or both.get("runAsUser") == 0:
            found.add("root")
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            found.add("capabilities")
        if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            found.add("seccomp")
        if own.get("procMount", "Default") != "Default":
            found.add("procMount")
        found |= {"hostPort" for port in container.get("ports", ()) if port.get("hostPort")}
    return found


def test_the_pod_keeps_to_the_restricted_standard() -> None:
    assert breaches(pod()) == set()


@pytest.mark.parametrize(
    ("place", "value", "breach"),
    [
        (("hostNetwork",), True, "hostNetwork"),
        (("securityContext", "runAsNonRoot"), False, "root"),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}, "seccomp"),
        (("containers", 0, "securityContext", "allowPrivilegeEscalation"), True, "allowPrivilegeEscalation"),
        (("containers", 0, "securityContext", "capabilities"), {"drop": ["NET_RAW"]}, "capabilities"),
        (("volumes", 0), {"name": "x", "hostPath": {"path": "/"}}, "hostPath"),
    ],
)
def test_a_pod_that_does_not_is_noticed(place: tuple[Any, ...], value: Any, breach: str) -> None:
    changed = yaml.safe_load(yaml.safe_dump(pod()))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value

    assert breaches(changed) == {breach}


def test_no_token_of_the_api_server_reaches_the_pod() -> None:
    assert the("ServiceAccount")["automountServiceAccountToken"] is False
    assert pod()["automountServiceAccountToken"] is False
    assert {subject["kind"] for subject in the("RoleBinding")["subjects"]} == {"Group"}


def test_all_traffic_is_denied_but_metrics() -> None:
    deny, allow = (item["spec"] for item in OBJECTS if item["kind"] == "NetworkPolicy")

    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert "egress" not in allow
    assert [port["port"] for rule in allow["ingress"] for port in rule["ports"]] == ["metrics"]
    assert all(rule["from"] for rule in allow["ingress"])


def test_selectors_find_the_pod() -> None:
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    policies = [item for item in OBJECTS if item["kind"] == "NetworkPolicy"]
    selectors = [
        the("Service")["spec"]["selector"],
        the("Deployment")["spec"]["selector"]["matchLabels"],
        *(item["spec"]["podSelector"].get("matchLabels", {}) for item in policies),
    ]

    assert all(selector.items() <= labels for selector in selectors)


def test_the_pod_has_probes_and_limits() -> None:
    (container,) = pod()["containers"]

    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
    assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


# --- compose ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compose.yaml", "compose.docker.yaml", "compose.server.yaml"])
def test_compose_files_keep_to_the_specification(name: str) -> None:
    assert "manager" in PyCompose.from_yaml(compose(name)).service_names()


def test_a_key_that_the_specification_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="read_onyl"):
        PyCompose.from_yaml(compose("compose.yaml").replace("read_only", "read_onyl"))


def test_no_docker_socket_is_mounted_unasked() -> None:
    assert "docker.sock" not in str(yaml.safe_load(compose("compose.yaml")))


def test_the_socket_of_the_docker_engine_has_no_default() -> None:
    text = (DEPLOY / "compose.docker.yaml").read_text()

    assert "${RINGFENCE_DOCKER_SOCKET:?" in text and "${RINGFENCE_DATA:?" in text


def test_with_the_docker_engine_files_have_the_same_name_on_both_sides() -> None:
    found = yaml.safe_load(compose("compose.docker.yaml"))["services"]["manager"]
    (data,) = [mount["source"] for mount in found["volumes"] if mount["source"] == mount["target"]]
    kept = ("HOME", "TMPDIR", "RINGFENCE_STATE_DIR", "RINGFENCE_WORKSPACES_DIR")

    assert all(found["environment"][name].startswith(data) for name in kept)
    assert found["pid"] == "host" and "privileged" not in found and "cap_add" not in found


def test_the_manager_has_no_power_and_no_way_out() -> None:
    found = service()

    assert found["cap_drop"] == ["ALL"]
    assert found["read_only"] is True
    assert "no-new-privileges" in found["security_opt"]
    assert "privileged" not in found
    assert yaml.safe_load(compose("compose.yaml"))["networks"]["metrics"] == {"internal": True}
    assert "ports" not in found


# --- what they share --------------------------------------------------------------------------------------------------


def test_files_that_are_named_are_there() -> None:
    mounted = [entry.split(":")[0] for entry in service()["volumes"] if entry.startswith("./")]
    profiles = [entry.partition("=")[2] for entry in service()["security_opt"] if entry.startswith("seccomp=")]

    assert mounted
    assert profiles == ["seccomp-manager.json"]
    assert all((DEPLOY / name).is_file() for name in (*mounted, *profiles, service()["build"]["dockerfile"]))


def test_the_managers_profile_is_what_the_rows_give() -> None:
    """If not: python -m ringfence.confinement.linux.seccomp_json manager > deploy/seccomp-manager.json"""
    assert (DEPLOY / "seccomp-manager.json").read_text() == seccomp_json.render(seccomp_json.manager_profile())


def test_the_managers_profile_lets_go_of_what_it_names_and_no_more() -> None:
    boxes = {name for rule in seccomp_json.docker_profile()["syscalls"] for name in rule["names"]}
    manager = {name for rule in seccomp_json.manager_profile()["syscalls"] for name in rule["names"]}

    assert boxes - manager == set(seccomp_json.NEEDED_OUTSIDE)
    assert manager < boxes


def test_the_policy_is_valid_and_the_same_everywhere() -> None:
    text = (DEPLOY / "policy.yaml").read_text()

    read_policy(DEPLOY / "policy.yaml", {})
    assert the("ConfigMap")["data"]["policy.yaml"] == text


def test_prometheus_asks_where_the_keeper_answers() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    (target,) = next(job for job in scraped if job["job_name"] == "ringfence")["static_configs"][0]["targets"]
    port = re.search(r'RINGFENCE_METRICS_PORT", "(\d+)"', (DEPLOY / "keeper.py").read_text())

    assert port is not None
    assert target == f"manager:{port[1]}"
    assert the("Service")["spec"]["ports"][0]["port"] == int(port[1])
    assert pod()["containers"][0]["ports"][0]["containerPort"] == int(port[1])


def test_both_deployments_run_the_same_probe() -> None:
    probes = {tuple(pod()["containers"][0][name]["exec"]["command"]) for name in ("readinessProbe", "livenessProbe")}

    assert probes == {("ringfence", "pool")}
    assert service()["healthcheck"]["test"] == ["CMD", "ringfence", "pool"]


# --- the server -------------------------------------------------------------------------------------------------------


def test_what_the_deployments_serve_with_are_options_of_the_command() -> None:
    options = {name for parameter in _serve_parameters() for name in parameter.opts}
    unit = (DEPLOY / "ringfence.service").read_text()
    entry = yaml.safe_load(compose("compose.server.yaml"))["services"]["manager"]["entrypoint"]
    lines = [line.partition("=")[2].split() for line in unit.splitlines() if line.startswith("ExecStart")]

    for words in (*lines, entry):
        assert words[1] == "serve" and {word for word in words if word.startswith("--")} <= options


def test_compose_serves_to_this_machine_only() -> None:
    (port,) = yaml.safe_load(compose("compose.server.yaml"))["services"]["manager"]["ports"]

    assert port.startswith("127.0.0.1:")


def _serve_parameters() -> list[Any]:
    import typer

    from ringfence.cli.commands.serve import serve

    app = typer.Typer()
    app.command()(serve)
    return list(typer.main.get_command(app).params)
