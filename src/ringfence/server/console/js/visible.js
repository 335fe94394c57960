// Makes characters visible that would otherwise hide what a text says: controls, bidirectional marks, zero widths, tags.

import { h } from "./dom.js";

const ODD =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|\udb40[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

/** The text as nodes, odd characters as marks that say their number. Tabs and line ends stay. */
export function visible(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(ODD)) {
    if (match.index > end) nodes.push(document.createTextNode(text.slice(end, match.index)));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(h("span", { class: "odd", title: `Character U+${code}, which does not show by itself` }, `⟨${code}⟩`));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(document.createTextNode(text.slice(end)));
  return nodes;
}

/** A command with the stretches that rules object to underlined. Spans are `[start, end]` in characters (code points). */
export function marked(text, spans) {
  const points = Array.from(text);
  const hot = new Array(points.length).fill(false);
  for (const [start, end] of spans ?? []) for (let at = Math.max(0, start); at < Math.min(end, points.length); at++) hot[at] = true;
  const nodes = [];
  for (let at = 0; at < points.length; ) {
    let end = at;
    while (end < points.length && hot[end] === hot[at]) end++;
    const piece = visible(points.slice(at, end).join(""));
    nodes.push(hot[at] ? h("mark", { class: "danger" }, piece) : piece);
    at = end;
  }
  return nodes.flat();
}
