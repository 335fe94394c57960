// The record: search, filters, one entry whole, and whether the chain holds.

import { at, get } from "../api.js";
import { button, field, fill, h, table } from "../dom.js";
import { moment, seconds } from "../format.js";
import { visible } from "../visible.js";

export async function record(body, { live, signal }) {
  const words = h("input", { type: "search", placeholder: "words of a command", autocomplete: "off" });
  const outcome = h("select", {}, ["", "allowed", "refused", "failed", "ok"].map((one) => h("option", { value: one }, one || "any")));
  const session = h("input", { type: "text", autocomplete: "off" });
  const chain = h("p", { role: "status" });
  const list = h("div");
  const form = h("form", { class: "row", role: "search" }, field("Search", words), field("Result", outcome), field("Session", session), h("button", { class: "main" }, "Search"), button("Verify the chain", verify), h("a", { class: "button", href: "/v1/audit/export", download: "ringfence-record.jsonl" }, "Export"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  fill(body, form, chain, list);
  await search();
  live.addEventListener("execution.ended", () => isBeingRead() || search(), { signal }); // new ones show by themselves

  // An entry that is open, or a page further back, stays where it is.
  function isBeingRead() {
    return list.querySelector('[aria-expanded="true"]') !== null || list.childElementCount > 2;
  }

  async function verify() {
    chain.textContent = "Verifying…";
    const told = await get("/v1/audit/verify", { signal });
    chain.className = told.is_whole ? "good" : "bad";
    fill(chain, visible(told.is_whole ? `The chain holds: ${told.records} records.` : told.says));
  }

  async function search(cursor) {
    const page = await get(at("/v1/audit", [], { text: words.value, result: outcome.value, session_id: session.value, limit: 50, cursor }), { signal });
    const rows = page.items.flatMap((one) => entry(one));
    const shown = table("Records, newest first", ["When", "What", "Tool", "Session", "Result", "Took"], rows, { empty: "Nothing matches." });
    if (cursor) list.lastChild?.remove(), list.append(shown);
    else fill(list, shown);
    if (page.next_cursor) list.append(button("Older ones", () => search(page.next_cursor)));
  }
}

function entry(one) {
  const whole = h("tr", { hidden: true }, h("td", { colspan: "6" }, h("pre", {}, visible(JSON.stringify(one, null, 2)))));
  const open = h("button", { type: "button", class: "link", "aria-expanded": "false" }, visible(String(one.command ?? one.code_hash ?? one.kind ?? one.id ?? "entry").slice(0, 300)));
  open.addEventListener("click", () => {
    whole.hidden = !whole.hidden;
    open.setAttribute("aria-expanded", String(!whole.hidden));
  });
  const good = one.result === "success" || one.result === "ok" || one.exit_code === 0;
  return [
    h("tr", {}, h("td", {}, moment(one.timestamp ?? one.time ?? one.at)), h("td", {}, open), h("td", {}, one.tool ?? "–"), h("td", {}, one.session_id ?? "–"), h("td", { class: good ? "good" : "bad" }, String(one.result ?? one.verdict ?? "–")), h("td", {}, one.execution_time_ms !== undefined && one.execution_time_ms !== null ? seconds(one.execution_time_ms / 1000) : "–")),
    whole,
  ];
}
