// Asks for a token and swaps it for a cookie; the token is kept nowhere.

import { get, post } from "./api.js";
import { field, fill, h } from "./dom.js";

/** Shows the form until somebody is let in; answers who it is. */
export function login(frame) {
  return new Promise((admitted) => {
    const token = h("input", { type: "password", autocomplete: "current-password", required: true });
    const trouble = h("p", { class: "bad", role: "alert" });
    const form = h(
      "form",
      { id: "login", class: "card wide" },
      h("h1", {}, "Ringfence"),
      h("p", {}, "Paste a token, or open the address that ringfence serve printed."),
      h("div", { class: "row" }, field("Token", token, "Made by: ringfence token create")),
      trouble,
      h("button", { class: "main" }, "Sign in"),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await post("/v1/login", { token: token.value });
        token.value = "";
        admitted(await get("/v1/me"));
      } catch (problem) {
        trouble.textContent = problem.sentence ?? String(problem);
      }
    });
    fill(frame, h("main", { id: "main" }, form));
    token.focus();
  });
}
