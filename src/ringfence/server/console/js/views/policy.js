// The policy tester: every vote on a command or address, and what another policy would have decided.

import { get, post } from "../api.js";
import { button, field, fill, h, table } from "../dom.js";
import { moment } from "../format.js";
import { marked, visible } from "../visible.js";

export async function policy(body, { signal }) {
  const what = h("input", { type: "text", placeholder: "rm -rf build, or https://example.com/x", autocomplete: "off", required: true });
  const text = h("textarea", { spellcheck: "false", placeholder: "Empty: the policy in force" });
  const told = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "row wide" }, field("A command, or an address", what), h("button", { class: "main" }, "What would be decided?"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      fill(told, votes(what.value, await post("/v1/check", { ...subject(what.value), ...(text.value.trim() ? { policy: text.value } : {}) })));
    } catch (problem) {
      fill(told, h("p", { class: "bad", role: "alert" }, problem.sentence ?? String(problem)));
    }
  });
  const compared = h("div", { "aria-live": "polite" });
  const inForce = h("p", { class: "quiet" });
  fill(body, inForce, form, told, h("h3", {}, "Try another policy"), field("Policy (YAML)", text, "It is tried here, on top of the one in force, and changes nothing."), h("div", { class: "row" }, button("What of last week would be decided otherwise?", replay)), compared);
  const { sources, roles, role } = await get("/v1/policies", { signal });
  inForce.textContent = sources.length ? `In force: ${sources.join(", ")}; role ${role ?? "none"} of ${roles.length ? roles.join(", ") : "none"}.` : "No policy is in force: what is asked for runs, behind the wall.";

  async function replay() {
    fill(compared, h("p", {}, "Deciding anew…"));
    try {
      const answer = await post("/v1/policies/replay", { text: text.value });
      fill(compared, h("p", {}, `${answer.looked_at} recorded requests were decided anew, ${answer.passed_over} could not be; ${answer.items.length} differ.`), table("Decided otherwise", ["When", "Command", "Then", "Now", "Rule"], answer.items.map((one) => [moment(one.timestamp), h("code", {}, visible(one.command)), verdict(one.before), verdict(one.after), visible(one.rule)]), { empty: "Nothing would change." }));
    } catch (problem) {
      fill(compared, h("p", { class: "bad", role: "alert" }, problem.sentence ?? String(problem)));
    }
  }
}

function subject(text) {
  if (!/^https?:\/\//.test(text)) return { command: text };
  const { hostname: host, port, protocol } = new URL(text);
  return { host, port: Number(port) || (protocol === "https:" ? 443 : 80) };
}

function verdict(word) {
  return h("span", { class: `verdict ${word}` }, word);
}

function votes(text, answer) {
  return h(
    "div",
    { class: "card" },
    h("p", {}, "Verdict: ", verdict(answer.verdict)),
    h("pre", {}, marked(text, answer.votes.flatMap(({ span }) => (span ? [span] : [])))),
    table("Every vote, strictest first", ["Vote", "Why", "Rule", "Where", "What would allow it"], answer.votes.map((reason) => [verdict(reason.verdict), visible(reason.why ?? ""), reason.rule ?? "–", reason.source ? `${reason.source}:${reason.line ?? ""}` : "built in", visible(reason.allow_by || "–")]), { empty: "No rule has a say." }),
  );
}
