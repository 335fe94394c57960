"""The console in a real browser, against a real server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import find_chromium, running_chromium
from tests.support.serving import RunningServer, running_server

pytestmark = [
    pytest.mark.req("X3"),
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed (apt-get install chromium)"),
]
BESIDE = ("/console/__init__.py", "/console/../wire.py", "/console/%2e%2e/wire.py", "/console/vendor/xterm.LICENSE")
PAGES = ("/", "/questions", "/sessions", "/events", "/record", "/policy", "/pool", "/tokens")
POLICY = """
policies:
  default:
    approvals:
      timeout: 4s
      ask_for:
        patterns: [rm a.txt]
"""
HOSTILE = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
    "\x1b]8;;javascript:window.broken=3\x07click\x1b]8;;\x07 \x1b[31mred\x1b[0m \u202egnp.exe \u200b \x1b[9999D\x1b[2J"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("console")
    (home / "policy.yaml").write_text(POLICY)
    config = {"tenants": {"default": {"policy": str(home / "policy.yaml"), "workspaces": [str(home)]}}}
    (home / "server.yaml").write_text(json.dumps(config))
    with running_server(home, "--config", str(home / "server.yaml")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def agent_token(server: RunningServer) -> str:
    """Another than the page's: the token that asks cannot answer."""
    return server.new_token("agent", "view", "run", "approve")


@pytest.fixture
def api(server: RunningServer, agent_token: str) -> Iterator[httpx.Client]:
    with server.client(agent_token) as client:
        yield client


@pytest.fixture
def session(api: httpx.Client) -> Iterator[str]:
    made = api.post("/v1/sessions", json={}).json()["id"]
    yield made
    api.delete(f"/v1/sessions/{made}")


@pytest.fixture
def page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """Signed in; whatever the page complains of fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda fault: complaints.append(str(fault)))
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    _sign_in(page, server)
    complaints.clear()  # before the login, asking who one is was refused
    yield page
    context.close()
    assert not complaints


def _sign_in(page: Page, server: RunningServer) -> None:
    page.goto(f"{server.url}/console/")
    page.get_by_label("Token").fill(server.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def _open(page: Page, server: RunningServer, path: str) -> None:
    page.goto(f"{server.url}/console/#{path}")


def _run(api: httpx.Client, session: str, **asked: Any) -> dict[str, Any]:
    answer = api.post(f"/v1/sessions/{session}/executions", json=asked)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_the_printed_address_signs_in_once_and_does_not_stay_in_the_history(
    browser: Browser, server: RunningServer
) -> None:
    found = re.search(r"open (\S+#code=\S+)", server.said())
    assert found is not None
    first, second = browser.new_context(), browser.new_context()
    page = first.new_page()
    page.goto(found[1])
    expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    assert "code" not in page.url
    page = second.new_page()
    page.goto(found[1])

    expect(page.get_by_label("Token")).to_be_visible()
    first.close()
    second.close()


def test_a_wrong_token_is_told_and_opens_nothing(browser: Browser, server: RunningServer) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/console/")
    page.get_by_label("Token").fill("rf_000000000000_" + "x" * 43)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("alert")).to_contain_text("not good")
    context.close()


def test_what_runs_shows_up_with_its_output_and_what_was_refused(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _open(page, server, "/")
    ended = _run(api, session, command="echo one; sleep 0.3; exit 3")
    refused = _run(api, session, command="cat /etc/shadow")

    card = page.locator(f'[data-execution="{ended["id"]}"]')
    expect(card).to_contain_text("one")
    expect(card).to_contain_text("exit code 3")
    card = page.locator(f'[data-execution="{refused["id"]}"]')
    expect(card).to_contain_text("/etc/shadow: password hashes [rule: check sensitive_path: /etc/shadow]; to allow it:")


def test_an_execution_is_ended_from_the_page(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _open(page, server, "/")
    asked = {"command": "sleep 60", "background": True}
    made = api.post(f"/v1/sessions/{session}/executions", json=asked).json()
    page.locator(f'[data-execution="{made["id"]}"]').get_by_role("button", name="End it").click()

    assert api.get(f"/v1/executions/{made['id']}/wait").json()["state"] == "ended"


def test_what_a_box_prints_is_never_html_and_hidden_characters_show(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _open(page, server, "/")
    ended = _run(api, session, argv=["printf", "%s\n", HOSTILE])

    card = page.locator(f'[data-execution="{ended["id"]}"]')
    expect(card.locator(".output")).to_contain_text("<script>window.broken = 1</script>")
    expect(card.locator(".output .odd").first).to_have_text("⟨202E⟩")
    assert card.locator(".output a, .output img, .output script").count() == 0
    assert page.evaluate("window.broken") is None


def test_endless_lines_and_floods_are_bounded_and_the_loss_is_counted(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _open(page, server, "/")
    ended = _run(api, session, command="head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end")

    card = page.locator(f'[data-execution="{ended["id"]}"]')
    expect(card).to_contain_text("exit code 0", timeout=20_000)
    expect(card.locator(".gap")).to_contain_text("not shown here")
    assert page.evaluate("document.body.scrollWidth <= innerWidth"), "a long line makes the page wider"
    assert len(card.locator(".output").inner_text()) < 400_000


def test_a_terminal_in_the_page_is_one_of_the_box(page: Page, server: RunningServer, session: str) -> None:
    _open(page, server, f"/sessions/{session}/terminal")
    screen = page.frame_locator("iframe.terminal").locator("#screen")
    expect(screen).to_contain_text("$", timeout=20_000)
    screen.click()
    page.keyboard.type("echo $((6*7)) > typed; cat typed; id -un\n")

    expect(screen).to_contain_text("42")
    expect(screen).to_contain_text("agent")


def test_files_are_listed_read_uploaded_and_removed(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _run(api, session, command="mkdir src; echo '<b>bold</b>' > src/page.html")
    _open(page, server, f"/sessions/{session}/files")
    page.get_by_role("button", name="src/").click()
    page.get_by_role("button", name="page.html", exact=True).click()
    expect(page.locator("pre")).to_have_text("<b>bold</b>\n")
    page.get_by_label("Upload").set_input_files({"name": "new.txt", "mimeType": "text/plain", "buffer": b"up"})
    expect(page.get_by_role("button", name="new.txt", exact=True)).to_be_visible()
    page.get_by_role("button", name="Remove page.html").click()

    expect(page.get_by_role("button", name="page.html", exact=True)).to_have_count(0)
    assert api.get(f"/v1/sessions/{session}/files", params={"path": "src/new.txt"}).content == b"up"


class Asked(threading.Thread):
    """Runs what a person is asked about, meanwhile."""

    def __init__(self, api: httpx.Client, session: str) -> None:
        super().__init__()
        self._api, self._session = api, session
        self.answer: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        self.answer = _run(self._api, self._session, command="touch a.txt; rm a.txt")["result"]


@pytest.mark.req("E6")
def test_a_question_is_allowed_in_the_page(page: Page, server: RunningServer, api: httpx.Client, session: str) -> None:
    _open(page, server, "/questions")
    asked = Asked(api, session)
    card = page.locator("[data-question]")
    expect(card.locator("mark")).to_contain_text("rm a.txt")
    expect(page.locator("#open-questions")).to_have_text("1")
    card.get_by_role("button", name="Allow once").click()
    asked.join()

    assert asked.answer["exit_code"] == 0
    expect(card).to_have_count(0)


@pytest.mark.req("E6")
def test_a_question_is_refused_with_a_word_that_reaches_who_asked(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _open(page, server, "/questions")
    asked = Asked(api, session)
    card = page.locator("[data-question]")
    card.get_by_label("A word").fill("use the trash instead")
    card.get_by_role("button", name="Refuse").click()
    asked.join()

    assert not asked.answer["ok"]
    assert "use the trash instead" in json.dumps(asked.answer)


@pytest.mark.req("E6")
def test_who_comes_back_sees_what_is_open_and_silence_is_a_refusal(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    asked = Asked(api, session)
    page.reload()
    _open(page, server, "/questions")
    card = page.locator("[data-question]")
    expect(card).to_have_count(1)
    asked.join()

    expect(card).to_have_count(0)
    assert not asked.answer["ok"]


def test_changes_of_a_shadow_are_looked_at_and_committed_hunk_by_hunk(
    page: Page, server: RunningServer, api: httpx.Client
) -> None:
    project = server.home / "project"
    project.mkdir()
    before = [f"line {number}\n" for number in range(40)]
    (project / "text").write_text("".join(before))
    made = api.post("/v1/sessions", json={"workspace": str(project), "shadow": True}).json()["id"]
    _run(api, made, command="sed -i 's/^line 3$/THREE/; s/^line 30$/THIRTY/' text; echo new > other")
    _open(page, server, f"/sessions/{made}/changes")
    expect(page.locator(".diff .add")).to_have_text(["+new", "+THREE", "+THIRTY"])
    page.get_by_label("Take change 2").uncheck()
    page.get_by_role("button", name="Commit what is ticked").click()
    expect(page.locator(".diff .add")).to_have_text(["+THIRTY"])

    assert (project / "text").read_text() == "".join(before).replace("line 3\n", "THREE\n")
    assert (project / "other").read_text() == "new\n"
    api.delete(f"/v1/sessions/{made}")


def test_the_policy_tester_shows_every_vote_with_file_and_line(page: Page, server: RunningServer) -> None:
    _open(page, server, "/policy")
    page.get_by_label("A command").fill("ls; rm a.txt")
    page.get_by_role("button", name="What would be decided?").click()

    expect(page.locator("main mark")).to_contain_text("rm a.txt")
    expect(page.locator("main table")).to_contain_text("policy.yaml:7")


def test_another_policy_is_tried_on_what_is_recorded(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _run(api, session, command="echo to be denied later")
    _open(page, server, "/policy")
    page.get_by_label("Policy (YAML)").fill("policies: {tools: {shell_exec: {denied_commands: [echo]}}}")
    page.get_by_role("button", name="What of last week").click()

    expect(page.get_by_role("row", name="to be denied later")).to_contain_text("deny")


def test_the_record_is_searched_and_its_chain_verified(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _run(api, session, command="echo a-rare-word")
    _open(page, server, "/record")
    page.get_by_label("Search", exact=True).fill("a-rare-word")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main tbody tr:visible")).to_have_count(1)
    page.get_by_role("button", name="a-rare-word").click()
    expect(page.locator("main pre")).to_contain_text('"exit_code": 0')
    page.get_by_role("button", name="Verify the chain").click()

    expect(page.get_by_text("The chain holds")).to_be_visible()


def test_the_record_shows_new_entries_by_itself(
    page: Page, server: RunningServer, api: httpx.Client, session: str
) -> None:
    _open(page, server, "/record")
    expect(page.get_by_role("button", name="Verify the chain")).to_be_visible()
    _run(api, session, command="echo seen-at-once")

    expect(page.get_by_role("button", name="seen-at-once")).to_be_visible()


def test_a_token_is_made_shown_once_and_revoked(page: Page, server: RunningServer) -> None:
    _open(page, server, "/tokens")
    page.get_by_label("Name").fill("of a test")
    page.get_by_role("button", name="Make a token").click()
    made = page.locator("main pre").inner_text()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {made}"}) as client:
        before = client.get("/v1/me").status_code
        page.get_by_role("button", name="Revoke of a test").click()
        expect(page.get_by_role("row", name="of a test")).to_contain_text("revoked")

        assert (before, client.get("/v1/me").status_code) == (200, 401)


def test_keys_lead_from_page_to_page(page: Page, server: RunningServer) -> None:
    page.keyboard.press("g")
    page.keyboard.press("s")

    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("size", [(1200, 900), (390, 844)], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_serious_faults_for_screen_readers(
    browser: Browser, server: RunningServer, session: str, size: tuple[int, int], scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    _sign_in(page, server)
    found = {}
    for path in (
        "/",
        "/questions",
        "/sessions",
        f"/sessions/{session}/files",
        "/events",
        "/record",
        "/policy",
        "/pool",
    ):
        _open(page, server, path)
        page.wait_for_timeout(300)
        faults = [
            (rule["id"], [node["html"][:120] for node in rule["nodes"]])
            for rule in Axe().run(page).response["violations"]
            if rule["impact"] in ("serious", "critical")
        ]
        if faults:
            found[path] = faults
    assert page.evaluate("document.body.scrollWidth <= innerWidth + 1")
    context.close()

    assert not found


def test_a_page_of_another_site_can_do_nothing_with_the_login(
    page: Page, server: RunningServer, api: httpx.Client
) -> None:
    cookie = {each["name"]: each["value"] for each in page.context.cookies()}
    with httpx.Client(base_url=server.url, cookies=cookie) as thief:
        assert thief.get("/v1/me").status_code == 200, "the cookie is good"
        without = thief.post("/v1/sessions", json={})
        elsewhere = thief.get("/v1/me", headers={"Origin": "https://evil.example"})
        csrf = thief.get("/v1/me").json()["csrf_token"]
        with_it = thief.post("/v1/sessions", json={}, headers={"Ringfence-CSRF": csrf})

    assert (without.status_code, without.json()["code"]) == (403, "csrf_token_missing")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (403, "origin_not_allowed")
    assert with_it.status_code == 201
    api.delete(f"/v1/sessions/{with_it.json()['id']}")


def test_a_revoked_token_ends_its_logins(browser: Browser, server: RunningServer) -> None:
    made = server.command("token", "create", "for a while")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip().splitlines()[-1]
    with httpx.Client(base_url=server.url) as client:
        client.post("/v1/login", json={"token": token})
        before = client.get("/v1/me").status_code
        server.command("token", "revoke", token.split("_")[1])

        assert (before, client.get("/v1/me").status_code) == (200, 401)


def test_nothing_beside_the_page_is_served(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url) as client:
        answers = {path: client.get(path).status_code for path in BESIDE}
        policy = client.get("/console/").headers["content-security-policy"]

    assert set(answers.values()) == {404}
    assert "script-src 'self';" in policy and "unsafe" not in policy
