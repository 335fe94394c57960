// What runs now: a card for each execution, its output as it comes, a way to end it.

import { at, get, remove } from "../api.js";
import { Output } from "../ansi.js";
import { button, fill, h } from "../dom.js";
import { moment, seconds } from "../format.js";
import { refusal } from "../refusal.js";
import { visible } from "../visible.js";

const MOST = 30;

export async function activity(body, { live, signal }) {
  const cards = new Map();
  const list = h("section", { "aria-label": "Executions" });
  const empty = h("p", { class: "empty" }, "Nothing runs. What agents start shows up here by itself.");
  fill(body, empty, list);

  const add = (execution) => {
    if (cards.has(execution.id)) return cards.get(execution.id);
    const card = new Card(execution);
    cards.set(execution.id, card);
    list.prepend(card.element);
    empty.hidden = true;
    for (const [id, old] of cards) if (cards.size > MOST && old.ended) old.element.remove(), cards.delete(id);
    return card;
  };

  live.addEventListener("execution.started", ({ detail }) => add(detail), { signal });
  live.addEventListener("execution.output", ({ detail }) => cards.get(detail.id)?.write(detail), { signal });
  live.addEventListener("execution.ended", ({ detail }) => (cards.get(detail.id) ?? add(detail)).end(detail), { signal });
  live.addEventListener("gap", () => empty.after(h("p", { class: "warn" }, "Some events came faster than they could be shown.")), { signal });

  const { items } = await get("/v1/executions?limit=1000", { signal });
  for (const execution of items.slice(-MOST)) {
    const card = add(execution);
    if (execution.state === "ended") card.end(execution);
  }
}

class Card {
  constructor(execution) {
    this.id = execution.id;
    this.ended = false;
    this.status = h("span", { class: "live" }, "running");
    this.stop = button("End it", () => remove(at("/v1/executions", [this.id])), { class: "no" });
    const screen = h("div", { class: "output", tabindex: "0", role: "log", "aria-label": "Output", hidden: true });
    this.output = new Output(screen);
    this.element = h(
      "article",
      { class: "card", "aria-label": "Execution", "data-execution": this.id },
      h("header", {}, this.status, h("span", { class: "quiet" }, moment(execution.started_at), execution.session_id ? [", session ", h("a", { href: `#/sessions/${encodeURIComponent(execution.session_id)}` }, execution.session_id)] : null), this.stop),
      h("pre", {}, visible(execution.shown ?? "")),
      screen,
    );
  }

  write({ stream, text, base64, dropped_bytes: dropped }) {
    const screen = this.output.element;
    screen.hidden = false;
    const follows = screen.scrollTop + screen.clientHeight >= screen.scrollHeight - 20;
    if (dropped) this.output.skipped(dropped);
    else this.output.write(text ?? latin(base64), stream);
    if (follows) screen.scrollTop = screen.scrollHeight;
  }

  end(execution) {
    if (this.ended) return;
    this.ended = true;
    this.stop.remove();
    const { result, problem } = execution;
    if (this.output.element.hidden && result) {
      if (result.stdout) this.write({ stream: "stdout", text: result.stdout });
      if (result.stderr) this.write({ stream: "stderr", text: result.stderr });
    }
    const took = execution.ended_at ? ` after ${seconds(execution.ended_at - execution.started_at)}` : "";
    this.status.className = result?.ok ? "good" : "bad";
    fill(this.status, problem ? problem.title : `${ending(result)}${took}`);
    for (const violation of result?.violations ?? []) this.element.append(h("p", { class: "bad" }, visible(refusal(violation))));
  }
}

/** How it ended, in a few words. */
export function ending(result) {
  if (!result) return "ended";
  const kind = result.ending?.kind ?? result.ending ?? "ended";
  if (kind === "exited" || result.exit_code !== undefined) return `exit code ${result.exit_code}`;
  return String(kind);
}

function latin(base64) {
  return base64 ? atob(base64) : "";
}
