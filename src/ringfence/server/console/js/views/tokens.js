// Who may use this server: tokens are made, shown once, and revoked.

import { at, get, post, remove } from "../api.js";
import { announce, button, field, fill, h, table } from "../dom.js";
import { moment } from "../format.js";

const SCOPES = ["view", "run", "approve", "audit", "tokens", "operate"];

export async function tokens(body, { signal }) {
  const name = h("input", { type: "text", required: true, maxlength: "64", autocomplete: "off" });
  const days = h("input", { type: "number", min: "1", max: "365", value: "30" });
  const scopes = SCOPES.map((scope) => {
    const box = h("input", { type: "checkbox", name: scope });
    box.checked = scope === "view" || scope === "run";
    return h("label", {}, box, ` ${scope}`);
  });
  const once = h("div");
  const list = h("div");
  const form = h("form", { class: "row" }, field("Name", name), field("Days", days), h("fieldset", { class: "row" }, h("legend", { class: "quiet" }, "May"), scopes), h("button", { class: "main" }, "Make a token"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const wanted = SCOPES.filter((scope) => form.elements[scope].checked);
      const made = await post("/v1/tokens", { name: name.value, scopes: wanted, lives_seconds: Number(days.value) * 86400 });
      fill(once, h("div", { class: "card" }, h("p", {}, "Copy it now: it is not shown again, and the server keeps only its hash."), h("pre", { tabindex: "0" }, made.token), button("Copy", async () => (await navigator.clipboard.writeText(made.token), announce("Copied.")))));
      await draw();
    } catch (problem) {
      announce(problem.sentence ?? String(problem), "error");
    }
  });
  fill(body, form, once, list);

  async function draw() {
    const { items } = await get("/v1/tokens", { signal });
    fill(
      list,
      table(
        "Tokens",
        ["Name", "May", "Made", "Ends", "Last used", ""],
        items.map((one) => [one.name, one.scopes.join(", "), moment(one.created_at), moment(one.expires_at), moment(one.used_at), one.revoked_at ? h("span", { class: "bad" }, "revoked") : button("Revoke", async () => (await remove(at("/v1/tokens", [one.id])), draw()), { class: "no", "aria-label": `Revoke ${one.name}` })]),
      ),
    );
  }
  await draw();
}
