// Shows a program's output: colours as classes, every other escape sequence dropped, odd characters made visible.
//
// What boxes print is hostile. Nothing here makes HTML, follows links or moves the cursor; a carriage return starts its line
// anew, as a progress bar means it. The live terminal (terminal.js) is the only place with a real screen.

import { h } from "./dom.js";
import { visible } from "./visible.js";

const SEQUENCE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;

/** Output with a limit: what is older is dropped, and the number of characters that are not shown is said. */
export class Output {
  #style = { fg: null, bg: null, flags: new Set() };
  #shown = 0;
  #dropped = 0;
  #line = null;
  #notice = null;
  #held = "";

  constructor(element, { limit = 200_000 } = {}) {
    this.element = element;
    this.limit = limit;
  }

  /** Adds text; `stream` becomes a class, so that stderr looks different. */
  write(text, stream = "stdout") {
    const whole = this.#held + text;
    const cut = unfinished(whole);
    this.#held = whole.slice(cut);
    if (this.#held.length > 4096) this.#held = ""; // a sequence that never ends
    let end = 0;
    const ready = whole.slice(0, cut);
    for (const match of ready.matchAll(SEQUENCE)) {
      this.#put(ready.slice(end, match.index), stream);
      if (match[2] === "m") this.#restyle(match[1]);
      end = match.index + match[0].length;
    }
    this.#put(ready.slice(end), stream);
    this.#trim();
  }

  #put(text, stream) {
    const lines = text.replaceAll("\r\n", "\n").split("\n");
    lines.forEach((line, index) => {
      if (index > 0) this.#line = null;
      if (this.#line === null && (line !== "" || index < lines.length - 1)) {
        this.#line = h("div", { class: "line" });
        this.element.append(this.#line);
      }
      if (line === "" || this.#line === null) return;
      const parts = line.split("\r");
      if (parts.length > 1) {
        this.#shown -= this.#line.textContent.length;
        this.#line.replaceChildren();
      }
      this.#add(parts.at(-1) || parts.at(-2) || "", stream);
    });
  }

  #add(text, stream) {
    if (text === "") return;
    const piece = h("span", { class: [stream, ...this.#style.flags].join(" ") }, visible(text));
    if (this.#style.fg) piece.style.color = this.#style.fg;
    if (this.#style.bg) piece.style.backgroundColor = this.#style.bg;
    this.#line.append(piece);
    this.#shown += text.length;
  }

  #trim() {
    while (this.#shown > this.limit && this.element.firstChild) {
      const first = this.element.firstChild === this.#notice ? this.#notice.nextSibling : this.element.firstChild;
      if (!first) break;
      const length = first.textContent.length;
      if (first === this.#line) this.#line = null;
      first.remove();
      this.#shown -= length;
      this.#dropped += length;
    }
    if (this.#dropped > 0) this.skipped(0);
  }

  /** Says that so many characters are not shown here. */
  skipped(count) {
    this.#dropped += count;
    this.#notice ??= h("div", { class: "gap" });
    this.#notice.textContent = `${this.#dropped.toLocaleString()} earlier characters are not shown here`;
    if (this.element.firstChild !== this.#notice) this.element.prepend(this.#notice);
  }

  #restyle(parameters) {
    const codes = parameters.split(/[;:]/).map((code) => Number(code) || 0);
    const style = this.#style;
    for (let at = 0; at < codes.length; at++) {
      const code = codes[at];
      if (code === 0) this.#style = { fg: null, bg: null, flags: new Set() };
      else if (code === 1) style.flags.add("bold");
      else if (code === 2) style.flags.add("dim");
      else if (code === 3) style.flags.add("italic");
      else if (code === 4) style.flags.add("underline");
      else if (code === 22) ["bold", "dim"].forEach((flag) => style.flags.delete(flag));
      else if (code === 23) style.flags.delete("italic");
      else if (code === 24) style.flags.delete("underline");
      else if (code === 38 || code === 48) {
        const [colour, used] = extended(codes.slice(at + 1));
        style[code === 38 ? "fg" : "bg"] = colour;
        at += used;
      } else if (code === 39) clear(style.flags, "fg"), (style.fg = null);
      else if (code === 49) clear(style.flags, "bg"), (style.bg = null);
      else if (named(code)) clear(style.flags, named(code).slice(0, 2)), style.flags.add(named(code));
    }
  }
}

function clear(flags, prefix) {
  for (const flag of [...flags]) if (flag.startsWith(`${prefix}-`)) flags.delete(flag);
}

function named(code) {
  if (code >= 30 && code <= 37) return `fg-${code - 30}`;
  if (code >= 90 && code <= 97) return `fg-${code - 90}`;
  if (code >= 40 && code <= 47) return `bg-${code - 40}`;
  if (code >= 100 && code <= 107) return `bg-${code - 100}`;
  return null;
}

function extended([kind, ...rest]) {
  if (kind === 2) return [`rgb(${rest.slice(0, 3).map((part) => Math.min(255, part || 0)).join(",")})`, 4];
  if (kind === 5) return [palette(Math.min(255, rest[0] || 0)), 2];
  return [null, 0];
}

function palette(index) {
  if (index >= 232) return `rgb(${Array(3).fill(8 + (index - 232) * 10).join(",")})`;
  if (index < 16) return null;
  const step = (value) => (value ? 55 + value * 40 : 0);
  const cube = index - 16;
  return `rgb(${step(Math.floor(cube / 36))},${step(Math.floor(cube / 6) % 6)},${step(cube % 6)})`;
}

// Where an escape sequence begins that has not ended yet; the length of the text if there is none.
function unfinished(text) {
  const start = text.lastIndexOf("\u001b");
  if (start < 0) return text.length;
  const rest = text.slice(start);
  const whole = new RegExp(`^(?:${SEQUENCE.source})`).exec(rest);
  const open = !whole || (/^\u001b[\]PX^_]/.test(rest) && !/(\u0007|\u001b\\)/.test(rest.slice(2)));
  return open ? start : text.length;
}
