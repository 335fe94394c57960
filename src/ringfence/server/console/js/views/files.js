// The files of a session: look, read, upload, download, remove.

import { at, call, get, put, remove } from "../api.js";
import { announce, button, fill, h, table } from "../dom.js";
import { bytes, moment } from "../format.js";
import { visible } from "../visible.js";

const SHOWN = 64 * 1024;

export async function files(body, { path, signal }) {
  let place = ".";
  const list = h("div");
  const shown = h("div");
  const upload = h("input", { type: "file", "aria-label": "Upload into this directory" });
  upload.addEventListener("change", async () => {
    for (const file of upload.files) await put(at(`${path}/files`, [], { path: join(place, file.name) }), file);
    upload.value = "";
    await draw();
  });
  fill(body, list, h("div", { class: "row" }, upload), shown);
  await draw();

  async function draw() {
    const { items, next_cursor: more } = await get(at(`${path}/files/list`, [], { path: place }), { signal });
    const rows = items.map((one) => [
      one.kind === "directory" ? button(`${nameOf(one)}/`, () => open(nameOf(one)), { class: "link" }) : button(nameOf(one), () => read(one), { class: "link" }),
      one.kind,
      bytes(one.size_bytes),
      moment(one.modified_at),
      [one.kind === "file" ? h("a", { class: "button", href: content(one), download: nameOf(one) }, "Download") : null, " ", button("Remove", () => drop(one), { class: "no", "aria-label": `Remove ${nameOf(one)}` })],
    ]);
    fill(list, h("p", {}, place === "." ? null : button("Up", () => open("..")), " ", h("code", {}, place)), table("Files", ["Name", "Kind", "Size", "Changed", ""], rows, { empty: "Empty." }), more ? h("p", { class: "quiet" }, "There are more entries than are shown.") : null);
  }

  async function open(name) {
    place = name === ".." ? place.split("/").slice(0, -1).join("/") || "." : join(place, name);
    fill(shown);
    await draw();
  }

  function content(one) {
    return at(`${path}/files`, [], { path: join(place, nameOf(one)) });
  }

  async function read(one) {
    const answer = await call("GET", content(one), { headers: { Range: `bytes=0-${SHOWN - 1}`, Accept: "*/*" }, response: true, signal });
    const text = new TextDecoder().decode(await answer.arrayBuffer());
    fill(shown, h("h3", {}, nameOf(one)), h("pre", { tabindex: "0" }, visible(text)), one.size_bytes > SHOWN ? h("p", { class: "quiet" }, `The first ${bytes(SHOWN)} of ${bytes(one.size_bytes)}; download it for the rest.`) : null);
  }

  async function drop(one) {
    await remove(at(`${path}/files`, [], { path: join(place, nameOf(one)), recursive: one.kind === "directory" }));
    announce(`${nameOf(one)} was removed.`);
    await draw();
  }
}

function join(place, name) {
  return place === "." ? name : `${place}/${name}`;
}

function nameOf(one) {
  return one.path.split("/").at(-1);
}
