// Builds elements. Text is always text: nothing in this page parses HTML.

/** An element with attributes and children; `on` holds listeners, `null` and `false` leave an attribute out. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Appends nodes, strings, numbers and lists of them. */
export function append(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** Puts these children in the place of what is there. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

/** A table with a caption for screen readers; rows are lists of cells. */
export function table(caption, heads, rows, { empty = "Nothing yet." } = {}) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "quiet-label" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((cells) => (cells instanceof Node ? cells : h("tr", {}, cells.map((cell) => h("td", {}, cell)))))),
    ),
  );
}

/** A button that cannot be pressed twice while what it does is under way. */
export function button(label, act, attributes = {}) {
  const element = h("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      await act();
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

/** A labelled field. */
export function field(label, input, hint) {
  input.id ||= `field-${(field.count = (field.count ?? 0) + 1)}`;
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, hint ? h("small", {}, hint) : null);
}

let announcer = null;

/** Says a sentence to screen readers and shows it for a while. */
export function announce(sentence, kind = "info") {
  announcer ??= document.getElementById("announcements");
  const note = h("p", { class: `note ${kind}` }, sentence);
  announcer.append(note);
  setTimeout(() => note.remove(), kind === "error" ? 15000 : 6000);
}
