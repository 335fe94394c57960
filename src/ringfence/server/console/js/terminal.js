// The screen of one terminal: bytes of the box to the screen, keys of the person to the box.
//
// What the box prints is hostile: links and window titles are ignored, and what a program asks the terminal to say goes
// back into the box only, as it would with any terminal.

import { at, call, get, post, remember } from "./api.js";
import { Terminal } from "../vendor/xterm.mjs";

const path = decodeURIComponent(location.hash.slice(1));

async function start() {
  if (!/^\/v1\/sessions\/[A-Za-z0-9._%-]+$/.test(path)) throw new Error("no session is named");
  remember((await get("/v1/me")).csrf_token);
  const screen = new Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000, linkHandler: { activate() {} }, screenReaderMode: true });
  screen.open(document.getElementById("screen"));
  const size = fit(screen);
  const made = await post(`${path}/executions`, { command: "exec bash -i", terminal: size, background: true, interactive: true, typed_by_person: true });
  const one = at("/v1/executions", [made.id]);
  const heard = new EventSource(`${one}/events`);
  heard.addEventListener("output", ({ data }) => screen.write(told(JSON.parse(data))));
  heard.addEventListener("execution", () => {
    heard.close();
    screen.write("\r\n[the terminal has ended]\r\n");
  });
  const keys = new Keys(`${one}/stdin`);
  screen.onData((typed) => keys.send(new TextEncoder().encode(typed)));
  screen.onBinary((typed) => keys.send(Uint8Array.from(typed, (letter) => letter.charCodeAt(0))));
  addEventListener("resize", () => post(`${one}/resize`, fit(screen)));
  screen.attachCustomKeyEventHandler((event) => {
    if (event.ctrlKey && event.shiftKey && event.key === "Escape") parent.postMessage("leave", location.origin);
    return true;
  });
  screen.focus();
}

// What is typed, in order: one request at a time, with all that was typed meanwhile.
class Keys {
  #waiting = [];
  #busy = false;

  constructor(path) {
    this.path = path;
  }

  async send(bytes) {
    this.#waiting.push(bytes);
    if (this.#busy) return;
    this.#busy = true;
    try {
      while (this.#waiting.length) await call("POST", this.path, { raw: new Blob(this.#waiting.splice(0)) });
    } finally {
      this.#busy = false;
    }
  }
}

function told(event) {
  if (event.text !== undefined) return event.text;
  if (event.base64 !== undefined) return Uint8Array.from(atob(event.base64), (letter) => letter.charCodeAt(0));
  return "";
}

// As many rows and columns as there is room for; the cell is measured once the font is there.
function fit(screen) {
  const cell = screen.element.querySelector(".xterm-rows")?.firstElementChild?.getBoundingClientRect();
  const height = cell?.height || 17;
  const width = measure(screen) || 8.4;
  const size = { rows: Math.max(2, Math.floor((innerHeight - 8) / height)), columns: Math.max(2, Math.floor((innerWidth - 24) / width)) };
  screen.resize(size.columns, size.rows);
  return size;
}

function measure(screen) {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.font = `${screen.options.fontSize}px ${screen.options.fontFamily}`;
  return canvas.measureText("W").width;
}

start().catch((problem) => (document.getElementById("screen").textContent = problem.sentence ?? String(problem)));
