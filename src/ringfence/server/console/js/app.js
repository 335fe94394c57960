// The console: who is there, which page is shown, and the keys that lead to it.

import { get, post, remember } from "./api.js";
import { announce, button, fill, h } from "./dom.js";
import { Live } from "./live.js";
import { login } from "./login.js";
import { PAGES, find } from "./pages.js";

const frame = document.getElementById("frame");
const live = new Live();
let leave = null;

async function start() {
  applyTheme(localStorage.getItem("theme"));
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) history.replaceState(null, "", location.pathname); // it works once, and must not stay in the history
  const me = await who(code);
  remember(me.csrf_token);
  build(me);
  live.start();
  addEventListener("hashchange", show);
  addEventListener("keydown", onKey);
  await show();
}

async function who(code) {
  try {
    if (code) await post("/v1/login", { code });
    return await get("/v1/me");
  } catch (problem) {
    if (problem.status !== 401 && problem.status !== 403) announce(problem.sentence ?? String(problem), "error");
    return login(frame);
  }
}

function build(me) {
  const links = PAGES.map(({ key, path, name }) =>
    h("li", {}, h("a", { href: `#${path}`, "data-path": path, "aria-keyshortcuts": `g ${key}` }, h("span", {}, name, " ", path === "/questions" ? h("span", { class: "count", id: "open-questions" }) : null), h("kbd", { "aria-hidden": "true" }, key))),
  );
  const state = h("p", { id: "state" }, `${me.token}, tenant ${me.tenant}`, h("br"), h("span", { id: "connection" }, "connecting"));
  const tools = h("p", { id: "tools" }, button("Dark or light", toggleTheme), button("Sign out", signOut));
  fill(frame, h("nav", { id: "side", "aria-label": "Pages" }, h("h1", {}, "Ringfence"), h("ul", {}, links), state, tools), h("main", { id: "main", tabindex: "-1" }));
  live.addEventListener("state", ({ detail }) => (document.getElementById("connection").textContent = detail));
  live.addEventListener("questions", ({ detail }) => {
    document.getElementById("open-questions").textContent = detail > 0 ? String(detail) : "";
    document.title = detail > 0 ? `(${detail}) Ringfence` : "Ringfence";
  });
}

async function show() {
  const path = location.hash.slice(1) || "/";
  const { page, parameters } = find(path);
  for (const link of frame.querySelectorAll("nav a")) {
    if (link.dataset.path === page.path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave?.abort();
  leave = new AbortController();
  const main = document.getElementById("main");
  fill(main, h("h2", {}, page.name), h("p", { class: "about" }, page.about));
  const body = h("div");
  main.append(body);
  main.focus({ preventScroll: true });
  try {
    await page.view(body, { parameters, live, signal: leave.signal });
  } catch (problem) {
    if (problem.name !== "AbortError") report(body, problem);
  }
}

function report(body, problem) {
  if (problem.status === 401) location.reload();
  body.append(h("p", { class: "bad", role: "alert" }, problem.sentence ?? String(problem)));
}

// `g` and then a letter leads to a page, unless somebody is typing.
let waiting = false;
function onKey(event) {
  if (event.target.closest("input, textarea, select, iframe") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (waiting) {
    const page = PAGES.find(({ key }) => key === event.key);
    if (page) location.hash = page.path;
    waiting = false;
  } else if (event.key === "g") waiting = true;
}

function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark ? "light" : "dark";
  localStorage.setItem("theme", theme);
  applyTheme(theme);
}

async function signOut() {
  await post("/v1/logout");
  location.reload();
}

addEventListener("unhandledrejection", ({ reason }) => {
  if (reason?.name === "AbortError") return;
  if (reason?.status === 401) location.reload();
  else announce(reason?.sentence ?? String(reason), "error");
});

start();
