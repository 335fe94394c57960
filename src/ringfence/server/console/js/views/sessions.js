// Sandboxes that are open.

import { at, get, post, remove } from "../api.js";
import { announce, button, field, fill, h, table } from "../dom.js";
import { moment, seconds } from "../format.js";

export async function sessions(body, { live, signal }) {
  const list = h("div");
  const name = h("input", { type: "text", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", autocomplete: "off" });
  const network = h("input", { type: "text", placeholder: "pip, api.example.com", autocomplete: "off" });
  const form = h("form", { class: "row" }, field("Name (or leave it to us)", name), field("Network: hosts and presets", network), h("button", { class: "main" }, "Open a session"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const hosts = network.value.split(/[\s,]+/).filter(Boolean);
    try {
      const made = await post("/v1/sessions", { ...(name.value ? { id: name.value } : {}), ...(hosts.length ? { network: hosts } : {}) });
      location.hash = `/sessions/${encodeURIComponent(made.id)}`;
    } catch (problem) {
      announce(problem.sentence ?? String(problem), "error");
    }
  });
  fill(body, form, list);

  const draw = async () => {
    const { items, next_cursor: more } = await get("/v1/sessions?limit=200", { signal });
    fill(
      list,
      table(
        "Open sessions",
        ["Session", "State", "Opened", "Ends", "Idle", "By", ""],
        items.map((one) => [
          h("a", { href: `#/sessions/${encodeURIComponent(one.id)}` }, one.id),
          one.state === "lost" ? h("span", { class: "bad", title: "The server was restarted: its box is gone, its files are there" }, "lost") : one.state,
          moment(one.created_at),
          moment(one.expires_at),
          seconds(one.idle_seconds),
          one.agent_id ?? "–",
          button("End", async () => (await remove(at("/v1/sessions", [one.id])), draw()), { class: "no", "aria-label": `End session ${one.id}` }),
        ]),
        { empty: "No session is open." },
      ),
      more ? h("p", { class: "quiet" }, "There are more than 200; the command line lists them all.") : null,
    );
  };
  for (const kind of ["session.created", "session.ended"]) live.addEventListener(kind, draw, { signal });
  await draw();
}
