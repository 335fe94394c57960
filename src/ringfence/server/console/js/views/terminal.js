// A terminal of the session, in a frame of its own.
//
// The screen needs styles that are made while it runs, which the content policy of this page forbids. The frame has
// a policy that allows those, and still no code but ours.

import { fill, h } from "../dom.js";

export async function terminal(body, { path, session, signal }) {
  if (session.state === "lost") {
    fill(body, h("p", { class: "empty" }, "There is no box for a terminal any longer."));
    return;
  }
  const frame = h("iframe", { class: "terminal", title: `Terminal of session ${session.id}`, src: `terminal.html#${encodeURIComponent(path)}` });
  fill(body, frame, h("p", { class: "quiet" }, "What is typed here runs in the sandbox, is judged by the policy, and is recorded as typed by a person. Ctrl+Shift+Escape leaves the terminal."));
  addEventListener("message", ({ source, data }) => source === frame.contentWindow && data === "leave" && document.getElementById("main").focus(), { signal });
}
