// Runs one script in QuickJS as Node would be asked to: `node --eval=CODE`, `node FILE ARGS...`, `node -` from stdin.
// The guest pumps promises and timers only while a module awaits something, so that the last line awaits their end.
import * as std from "qjs:std";
import * as os from "qjs:os";

const words = [...scriptArgs];
let pending = 0;
let settle = null;

function over() {
  pending -= 1;
  if (pending === 0 && settle) settle();
}

function later(repeat) {
  return (work, ms = 0, ...given) => {
    const handle = { id: null, live: true };
    pending += 1;
    const fire = () => {
      if (!handle.live) return;
      try {
        work(...given);
      } catch (fault) {
        fail(fault);
      }
      if (repeat && handle.live) handle.id = os.setTimeout(fire, Math.max(1, ms));
      else if (handle.live) {
        handle.live = false;
        over();
      }
    };
    handle.id = os.setTimeout(fire, Math.max(0, Number(ms) || 0));
    return handle;
  };
}

function clear(handle) {
  if (!handle || !handle.live) return;
  handle.live = false;
  os.clearTimeout(handle.id);
  over();
}

function fail(fault) {
  const text = fault instanceof Error ? `${fault.name}: ${fault.message}\n${fault.stack || ""}` : `Uncaught ${String(fault)}\n`;
  std.err.puts(text);
  std.err.flush();
  std.exit(1);
}

function show(value) {
  if (typeof value === "string") return value;
  if (typeof value === "function") return `[Function: ${value.name || "anonymous"}]`;
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof Error) return value.stack ? `${value.name}: ${value.message}\n${value.stack}` : String(value);
  if (value === null || typeof value !== "object") return String(value);
  if (value instanceof Map) return `Map(${value.size}) ${show(Object.fromEntries(value))}`;
  if (value instanceof Set) return `Set(${value.size}) ${show([...value])}`;
  try {
    return JSON.stringify(value);
  } catch {
    return String(value);
  }
}

const writer = (stream) => (...given) => {
  stream.puts(given.map(show).join(" ") + "\n");
  stream.flush();
};
const say = writer(std.out);
const complain = writer(std.err);
globalThis.console = { log: say, info: say, debug: say, error: complain, warn: complain, trace: complain };

class Left extends Error {}

function failed(path, number) {
  const names = { 1: "EPERM", 2: "ENOENT", 13: "EACCES", 17: "EEXIST", 20: "ENOTDIR", 21: "EISDIR", 44: "ENOENT", 76: "EPERM" };
  const code = names[Math.abs(number)] || `errno ${Math.abs(number)}`;
  return Object.assign(new Error(`${code}: ${path}`), { code, path });
}

function bytesOf(path) {
  const trouble = {};
  const file = std.open(path, "rb", trouble);
  if (!file) throw failed(path, trouble.errno);
  const pieces = [];
  let size = 0;
  for (;;) {
    const piece = new Uint8Array(65536);
    const count = file.read(piece.buffer, 0, piece.length);
    if (count <= 0) break;
    pieces.push(piece.subarray(0, count));
    size += count;
  }
  file.close();
  const all = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function put(path, data, mode) {
  const trouble = {};
  const file = std.open(path, mode, trouble);
  if (!file) throw failed(path, trouble.errno);
  if (typeof data === "string") file.puts(data);
  else file.write(data.buffer, data.byteOffset, data.byteLength);
  file.close();
}

function done(path, number) {
  if (number < 0) throw failed(path, number);
}

const fs = {
  readFileSync(path, options) {
    const encoding = typeof options === "string" ? options : options && options.encoding;
    if (path === 0 || path === "/dev/stdin") return std.in.readAsString();
    if (!encoding) return bytesOf(path);
    const text = std.loadFile(path);
    if (text === null) throw failed(path, 2);
    return text;
  },
  writeFileSync: (path, data) => put(path, data, "wb"),
  appendFileSync: (path, data) => put(path, data, "ab"),
  existsSync: (path) => os.stat(path)[1] === 0,
  readdirSync(path) {
    const [names, number] = os.readdir(path);
    if (number) throw failed(path, number);
    return names.filter((name) => name !== "." && name !== "..").sort();
  },
  mkdirSync: (path) => done(path, os.mkdir(path)),
  unlinkSync: (path) => done(path, os.remove(path)),
  rmdirSync: (path) => done(path, os.remove(path)),
  renameSync: (from, to) => done(from, os.rename(from, to)),
  statSync(path) {
    const [found, number] = os.stat(path);
    if (number) throw failed(path, number);
    const kind = found.mode & os.S_IFMT;
    return { size: found.size, mtimeMs: found.mtime, isFile: () => kind === os.S_IFREG, isDirectory: () => kind === os.S_IFDIR };
  },
};
const path = {
  join: (...parts) => parts.filter(Boolean).join("/").replace(/\/+/g, "/"),
  basename: (name, end = "") => name.split("/").pop().replace(new RegExp(`${end.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`), ""),
  dirname: (name) => name.split("/").slice(0, -1).join("/") || (name.startsWith("/") ? "/" : "."),
  extname: (name) => (/[^/.](\.[^/.]*)$/.exec(name) || ["", ""])[1],
};
const modules = { fs, path };

Object.assign(globalThis, {
  setTimeout: later(false),
  setInterval: later(true),
  setImmediate: (work, ...given) => later(false)(work, 0, ...given),
  clearTimeout: clear,
  clearInterval: clear,
  process: {
    argv: ["node"],
    env: std.getenviron(),
    exit: (code = 0) => std.exit(code & 0xff),
    cwd: () => std.getenv("PWD") || "/workspace",
    platform: "wasi",
    stdout: { write: (text) => (std.out.puts(String(text)), std.out.flush(), true) },
    stderr: { write: (text) => (std.err.puts(String(text)), std.err.flush(), true) },
  },
  require(name) {
    const found = modules[name.replace(/^node:/, "")];
    if (!found) throw Object.assign(new Error(`Cannot find module '${name}'`), { code: "MODULE_NOT_FOUND" });
    return found;
  },
});

async function main() {
  let at = 0;
  let code = null;
  let isModule = false;
  for (; at < words.length && code === null; at += 1) {
    const word = words[at];
    if (word === "--input-type=module") isModule = true;
    else if (word === "-e" || word === "--eval" || word === "-p") code = words[(at += 1)] ?? "";
    else if (word.startsWith("--eval=")) code = word.slice(7);
    else if (word === "-") code = std.in.readAsString();
    else if (word.startsWith("--")) continue;
    else {
      code = std.loadFile(word);
      if (code === null) {
        std.err.puts(`node: cannot open ${word}\n`);
        std.exit(2);
      }
      process.argv.push(word);
      isModule ||= word.endsWith(".mjs");
    }
  }
  if (code === null) code = std.in.readAsString();
  process.argv.push(...words.slice(at));
  if (/^#!/.test(code)) code = `//${code}`;
  // A module cannot be evaluated from a text here: as the body of an async function it may await at its top.
  const body = isModule || /^\s*await\s|[^\w.$]await\s/.test(code) ? `(async () => {\n${code}\n})()` : code;
  await std.evalScript(body);
  if (pending > 0) await new Promise((resolve) => (settle = resolve));
}

try {
  await main();
} catch (fault) {
  fail(fault);
}
std.out.flush();
