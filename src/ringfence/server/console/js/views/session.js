// One sandbox: its terminal, its files, what it changed, its ports.

import { at, get, post, remove } from "../api.js";
import { announce, button, fill, h } from "../dom.js";
import { moment } from "../format.js";
import { changes } from "./changes.js";
import { files } from "./files.js";
import { terminal } from "./terminal.js";

const PARTS = { terminal: ["Terminal", terminal], files: ["Files", files], changes: ["Changes", changes] };

export async function session(body, { parameters: { id, part }, signal }) {
  const path = at("/v1/sessions", [id]);
  const about = await get(path, { signal });
  const ports = Object.entries(about.published ?? {});
  const here = h("div");
  fill(
    body,
    h("div", { class: "card" }, h("header", {}, h("h3", {}, about.id), h("span", { class: about.state === "lost" ? "bad" : "quiet" }, about.state === "lost" ? "lost: the server was restarted, its box is gone, its files are there" : `ends ${moment(about.expires_at)}`)), h("dl", {}, facts(about)), ports.length ? h("p", {}, "Ports: ", ports.map(([port, url]) => h("a", { href: url, target: "_blank", rel: "noreferrer noopener", class: "button" }, port))) : null, h("div", { class: "row" }, button("An hour more", () => extend(path)), button("End the session", () => end(path), { class: "no" }))),
    h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the session" }, Object.entries(PARTS).map(([key, [name]]) => h("button", { type: "button", role: "tab", "aria-selected": String(key === part), tabindex: key === part ? "0" : "-1", on: { click: () => (location.hash = `/sessions/${encodeURIComponent(id)}/${key}`), keydown: turn } }, name))),
    here,
  );
  await (PARTS[part] ?? PARTS.terminal)[1](here, { path, session: about, signal });
}

function facts({ metadata, role, preset, agent_id: agent, workspace, wall, notes }) {
  const rows = { role, preset, "made by": agent, workspace, wall: wall?.name ?? null, ...metadata, notes: (notes ?? []).join("; ") };
  return Object.entries(rows).filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]);
}

// Left and right go from tab to tab, as a screen reader's user expects.
function turn(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...event.target.parentElement.children];
  tabs.at((tabs.indexOf(event.target) + step) % tabs.length).click();
}

async function extend(path) {
  const { expires_at: ends } = await post(`${path}/extend`, { ttl_seconds: 3600 });
  announce(`It ends at ${moment(ends)} now.`);
}

async function end(path) {
  await remove(path);
  location.hash = "/sessions";
}
