"""`ringfence init` and `ringfence config show`: a policy that fits the project, and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ringfence.cli.app import app
from ringfence.manager.project import look_at
from ringfence.manager.starting_policy import policy_text
from ringfence.policy.lint import lint
from ringfence.policy.load import load_policy

pytestmark = pytest.mark.req("B4", "A1")


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("RINGFENCE_POLICY", "RINGFENCE_RUNSC_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home / "project")
    return home


def ringfence(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


PROJECTS = [
    ({"pyproject.toml": "", "uv.lock": "", "tests/test_a.py": ""}, "python", "uv", "pytest -q", "uv publish"),
    (
        {"setup.py": "", ".venv/x": "", "conftest.py": ""},
        "python",
        "pip",
        ".venv/bin/python -m pytest -q",
        "twine upload",
    ),
    (
        {"package.json": '{"scripts": {"test": "x"}}', "yarn.lock": ""},
        "javascript",
        "yarn",
        "yarn test",
        "yarn publish",
    ),
    ({"package.json": "{}", "tsconfig.json": "{}"}, "typescript", "npm", "", "npm publish"),
    ({"Cargo.toml": ""}, "rust", "cargo", "cargo test", "cargo publish"),
    ({"go.mod": ""}, "go", "go", "go test ./...", "git push"),
    ({"Makefile": "all:\ntest: all\n", "main.c": ""}, "", "", "make test", "git push"),
    ({"deploy.sh": ""}, "bash", "", "", "git push"),
    ({}, "", "", "", "git push"),
]


@pytest.mark.parametrize(("files", "language", "manager", "tests", "asked"), PROJECTS, ids=lambda part: str(part)[:40])
def test_a_policy_starts_from_what_is_there_and_is_valid(
    account: Path, files: dict[str, str], language: str, manager: str, tests: str, asked: str
) -> None:
    project = account / "project"
    for name, text in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)

    found = look_at(project)
    policy = load_policy(policy_text(found, "policy.yaml"), "policy.yaml")

    assert (language in found.languages) if language else not found.languages
    assert (manager in found.managers) if manager else not found.managers
    assert found.test_command == tests
    assert asked in [rule.written for rule in policy.default["approvals.ask_for.patterns"].value]
    assert lint(policy) == ()


def test_nothing_that_a_project_says_gets_into_the_policy(account: Path) -> None:
    project = account / "project"
    evil = "x\npolicies: {default: {mode: permissive}}\n# "
    (project / "package.json").write_text(json.dumps({"name": evil, "scripts": {"test": evil, evil: evil}}))
    (project / "pyproject.toml").write_text(f'[tool.pytest.ini_options]\nname = """{evil}"""\n')
    (project / ".env\n- evil.pem").write_text("")

    text = policy_text(look_at(project), "policy.yaml")

    assert "permissive}" not in text and "evil" not in text
    assert load_policy(text, "policy.yaml")


def test_files_that_often_hold_secrets_are_hidden(account: Path) -> None:
    (account / "project" / "deploy").mkdir()
    (account / "project" / "deploy" / "prod.tfstate").write_text("")
    (account / "project" / "node_modules").mkdir()
    (account / "project" / "node_modules" / "x.jks").write_text("")

    assert look_at(account / "project").secrets == ("*.tfstate",)
    assert '- "**/*.tfstate"' in ringfence("init", "-").stdout


def test_init_writes_once_says_what_it_means_and_never_writes_over_a_file(account: Path) -> None:
    (account / "project" / "pyproject.toml").write_text("")

    first = ringfence("init")
    before = (account / "project" / "policy.yaml").read_text()
    second = ringfence("init")

    assert first.exit_code == 0 and "python" in first.stdout and "asked about" in first.stdout
    assert "exists already" in str(second.exception)
    assert (account / "project" / "policy.yaml").read_text() == before
    assert ringfence("policy", "check", "--strict", "policy.yaml").exit_code == 0


def shown(*words: object) -> dict[str, tuple[str, str]]:
    said = json.loads(ringfence("config", "show", "--json", *words).stdout)
    return {row["name"]: (row["value"], row["source"]) for row in said["settings"]}


def test_config_show_says_for_each_value_where_it_comes_from(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (account / ".ringfence").mkdir()
    file = account / ".ringfence" / "sandbox.json"
    file.write_text('{"enabled": true,\n "filesystem": {"blacklist": ["~/.kube"]},\n "limits": {"memory": "1GB"}}')
    monkeypatch.setenv("OPENAGENTIC_PROCESS_SANDBOX", "unshare")
    monkeypatch.setenv("RINGFENCE_REDACT", "hunter2hunter2")

    found = shown()

    assert found["configuration file"] == (str(file), "default")
    assert found["enabled"] == ("yes", f"{file}:1")
    assert found["filesystem.blacklist"] == ("~/.kube", f"{file}:2")
    assert found["limits.memory"] == ("1 GiB", f"{file}:3")
    assert found["limits.wall"] == ("120 s", "default")
    assert found["wall"] == ("unshare", "$OPENAGENTIC_PROCESS_SANDBOX")
    assert found["further texts to redact"] == ("1", "$RINGFENCE_REDACT")
    assert "hunter2" not in ringfence("config", "show").stdout


def test_config_show_has_the_limits_that_hold_under_a_policy(account: Path) -> None:
    (account / "project" / "p.yaml").write_text(
        "policies:\n  default:\n    max_memory: 512MB\n    limits: {files: 10}\n"
    )

    found = shown("--policy", "p.yaml")

    assert found["limits.memory"] == ("512 MiB", "max_memory, p.yaml:3")
    assert found["limits.files"] == ("10", "p.yaml:4")
    assert found["limits.disk"] == ("4 GiB", "default")
    assert set(shown("--policy", "p.yaml", "--changed")) == {"project's policy", "limits.memory", "limits.files"}


def test_config_show_says_what_a_deployment_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_MAX_MEMORY", "512m")

    assert shown()["limits.memory"] == ("512 MiB", "$SANDBOX_MAX_MEMORY")


def test_every_variable_that_is_documented_is_shown() -> None:
    """But for those that are named among the files, and those that have no effect."""
    from ringfence.manager import in_force

    source = Path(in_force.__file__).read_text()
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith(("| `RINGFENCE_", "| `DOCKER_"))]

    missing = {name for name in rows if name not in source}
    assert missing <= {
        "RINGFENCE_PROCESS_SANDBOX_REQUIRED",
        "RINGFENCE_BWRAP_NETWORK",
        "RINGFENCE_SHELL_OPTIONS",  # options of single commands, of `ringfence-shell` alone
        "RINGFENCE_KEEPER",  # the native front's, which reads it before there is a configuration
        "RINGFENCE_NETWORK",
        "RINGFENCE_POLICY",
        "RINGFENCE_SANDBOX_INTEGRATION",
    }
