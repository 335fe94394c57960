// What waits for a person: what would run, why it is asked, and the answer.

import { at, get, post } from "../api.js";
import { announce, button, field, fill, h, table } from "../dom.js";
import { moment, seconds } from "../format.js";
import { marked, visible } from "../visible.js";

export async function questions(body, { live, signal }) {
  const list = h("div", { "aria-live": "polite" });
  const past = h("div");
  fill(body, list, h("h3", {}, "Answered lately"), past);
  const cards = new Map();

  const draw = () => {
    for (const [id, card] of cards) if (!live.questions.has(id)) card.remove(), cards.delete(id);
    for (const [id, question] of live.questions) if (!cards.has(id)) list.append(cards.set(id, ask(question)).get(id));
    list.querySelector(".empty")?.remove();
    if (cards.size === 0) list.append(h("p", { class: "empty" }, "Nobody waits for an answer."));
  };
  const answered = async () => {
    const { items } = await get("/v1/questions?state=all&limit=1000", { signal });
    const latest = items.filter((one) => one.state === "answered").slice(-20).reverse();
    fill(past, table("Answered questions", ["When", "What", "Answer", "By", "How"], latest.map((one) => [moment(one.answered_at), h("code", {}, visible(one.command)), one.choice ?? "–", one.by ?? "–", visible(one.how ?? "–")])));
  };
  for (const kind of ["question.asked", "question.answered", "question.list"]) live.addEventListener(kind, draw, { signal });
  live.addEventListener("question.answered", answered, { signal });
  const clock = setInterval(() => list.querySelectorAll("[data-expires]").forEach(tick), 1000);
  signal.addEventListener("abort", () => clearInterval(clock));
  draw();
  await answered();
}

function tick(element) {
  const left = Number(element.dataset.expires) - Date.now() / 1000;
  element.textContent = left > 0 ? `refused in ${seconds(left)} if nobody answers` : "time is over";
}

function ask(question) {
  const comment = h("input", { type: "text", maxlength: "500", autocomplete: "off" });
  const answer = (choice) => async () => {
    try {
      await post(at("/v1/questions", [question.id, "answer"]), { choice, comment: comment.value, request_hash: question.request_hash });
      announce(choice === "no" ? "Refused." : "Allowed.");
    } catch (problem) {
      announce(problem.sentence ?? String(problem), "error");
    }
  };
  const expires = h("span", { class: "warn", "data-expires": question.expires_at });
  tick(expires);
  const reasons = question.reasons ?? [];
  return h(
    "article",
    { class: "card", "aria-label": "Question", "data-question": question.id },
    h("header", {}, h("h3", {}, `Run this? Risk: ${question.risk ?? "unknown"}`), expires),
    h("pre", {}, marked(question.command, question.spans)),
    h("dl", {}, (question.details ?? []).map(([name, value]) => [h("dt", {}, name), h("dd", {}, visible(value))]), question.session_id ? [h("dt", {}, "session"), h("dd", {}, visible(question.session_id))] : null),
    reasons.map((reason) => h("p", {}, h("span", { class: `verdict ${reason.verdict}` }, `${reason.verdict}: `), visible(reason.why ?? ""), h("span", { class: "quiet" }, visible(` (rule ${reason.place || reason.rule})`)))),
    h("div", { class: "row" }, field("A word to whoever asked (they and the model read it)", comment)),
    h(
      "div",
      { class: "row" },
      button("Allow once", answer("yes"), { class: "main" }),
      question.may_remember === false ? null : button("Allow for this session", answer("yes_for_session")),
      button("Refuse", answer("no"), { class: "no" }),
    ),
    question.policy_lines?.length ? h("details", {}, h("summary", {}, "Allow it for good"), h("p", {}, "In the policy, this would allow it without asking:"), h("pre", {}, visible(question.policy_lines.join("\n"))), button("Allow once, and note that the policy should say so", answer("yes_as_policy"))) : null,
  );
}
