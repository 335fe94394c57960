// Shows the changes of one file, hunk by hunk; each hunk can be chosen.

import { h } from "./dom.js";
import { visible } from "./visible.js";

/** Hunks are `{old_start, new_start, lines}`. `choose(index, wanted)` is called when a hunk's box is ticked. */
export function diff(hunks, { choose } = {}) {
  const rows = hunks.flatMap(({ old_start: old, new_start: fresh, lines }, index) => [
    h("div", { class: "hunk" }, choose ? tick(index, choose) : null, h("span", {}, `line ${old} becomes line ${fresh}`)),
    ...lines.map((line) => h("div", { class: { "+": "add", "-": "del" }[line[0]] }, visible(line.replace(/\n$/, "") || " "))),
  ]);
  return h("div", { class: "diff", role: "region", tabindex: "0", "aria-label": "Changes" }, rows);
}

function tick(index, choose) {
  const box = h("input", { type: "checkbox", "aria-label": `Take change ${index + 1}` });
  box.checked = true;
  box.addEventListener("change", () => choose(index, box.checked));
  return box;
}
