// What a session changed in its shadow: file by file, hunk by hunk, and the commit of what was chosen.

import { at, call, get, post } from "../api.js";
import { announce, button, fill, h } from "../dom.js";
import { diff } from "../diff.js";
import { visible } from "../visible.js";

const SHOWN = 64 * 1024;

export async function changes(body, { path, session, signal }) {
  if (!session.shadow) {
    fill(body, h("p", { class: "empty" }, "This session works on its own files, without a shadow: there is nothing to commit."));
    return;
  }
  await draw();

  async function draw() {
    const { items, digest } = await get(`${path}/changes`, { signal });
    if (items.length === 0) {
      fill(body, h("p", { class: "empty" }, "Nothing has changed."));
      return;
    }
    const files = await Promise.all(items.map(async (change) => new File(change, await hunksOf(change), await newText(change))));
    fill(body, files.map((file) => file.element), h("div", { class: "row" }, button("Commit what is ticked", () => commit(files, digest), { class: "main" })));
  }

  // Only texts have hunks; whatever else was changed is taken whole or not at all.
  async function hunksOf(change) {
    if (change.is_binary || change.refused || change.lines_added + change.lines_removed === 0) return null;
    if (change.kind !== "changed") return null;
    return get(at(`${path}/hunks`, [], { path: change.path }), { signal });
  }

  // The beginning of a new text, for which there are no hunks to choose from.
  async function newText(change) {
    if (change.kind !== "added" || change.is_binary || change.lines_added === 0) return null;
    const answer = await call("GET", at(`${path}/files`, [], { path: change.path }), { headers: { Range: `bytes=0-${SHOWN - 1}`, Accept: "*/*" }, response: true, signal });
    const lines = new TextDecoder().decode(await answer.arrayBuffer()).split("\n");
    return lines.slice(0, lines.at(-1) === "" ? -1 : undefined).map((line) => `+${line}`);
  }

  async function commit(files, digest) {
    const paths = files.filter((file) => file.isWhole).map((file) => file.path);
    const hunks = files.filter((file) => file.isPartial).map((file) => file.choice);
    if (paths.length + hunks.length === 0) {
      announce("Nothing is ticked.");
      return;
    }
    try {
      const { applied, refused, conflicts } = await post(`${path}/commit`, { digest, paths, hunks });
      announce(`Committed: ${applied.length}.`);
      for (const { path: where, why, allow_by: remedy } of [...refused, ...conflicts]) announce(`${where}: ${why}; ${remedy}`, "error");
    } catch (problem) {
      announce(problem.sentence ?? String(problem), "error");
    }
    await draw();
  }
}

class File {
  #wanted = true;
  #hunks;
  #chosen;

  constructor(change, hunks, fresh) {
    this.path = change.path;
    this.#hunks = hunks;
    this.#chosen = new Set(hunks?.hunks.map((_, index) => index));
    this.#wanted = !change.refused;
    const whole = h("input", { type: "checkbox", disabled: Boolean(change.refused) });
    whole.checked = this.#wanted;
    whole.addEventListener("change", () => (this.#wanted = whole.checked));
    const choose = (index, wanted) => (wanted ? this.#chosen.add(index) : this.#chosen.delete(index));
    this.element = h(
      "article",
      { class: "card" },
      h("header", {}, h("label", {}, whole, " ", h("code", {}, visible(change.path))), h("span", { class: "quiet" }, `${change.kind} +${change.lines_added} -${change.lines_removed}`)),
      change.refused ? h("p", { class: "bad" }, visible(`Never carried over: ${change.refused}`)) : null,
      hunks ? diff(hunks.hunks, { choose: hunks.hunks.length > 1 ? choose : null }) : null,
      fresh ? diff([{ old_start: 0, new_start: 1, lines: fresh }]) : null,
    );
  }

  get isWhole() {
    return this.#wanted && (!this.#hunks || this.#chosen.size === this.#hunks.hunks.length);
  }

  get isPartial() {
    return this.#wanted && !this.isWhole && this.#chosen.size > 0;
  }

  get choice() {
    return { path: this.path, mark: this.#hunks.mark, numbers: [...this.#chosen].sort((one, other) => one - other) };
  }
}
