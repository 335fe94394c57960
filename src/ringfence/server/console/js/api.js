// The one way to the server: JSON in and out, the CSRF token on whatever changes something, errors with their hint.

let csrf = null;

/** What the server refused or could not do, in its own words. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.title || body?.detail || `The server answered ${status}.`);
    this.status = status;
    this.code = body?.code ?? null;
    this.hint = body?.hint ?? null;
    this.faults = body?.fields?.faults ?? [];
  }

  get sentence() {
    const each = this.faults.map(({ title, hint }) => (hint ? `${title} (${hint})` : title)).join("; ");
    return [this.hint ? `${this.message} (${this.hint})` : this.message, each].filter(Boolean).join(": ");
  }
}

export function remember(token) {
  csrf = token;
}

/** Calls the API. `body` is sent as JSON; `raw` as it is. Answers with the JSON that came, or null. */
export async function call(method, path, { body, raw, headers = {}, signal, response = false } = {}) {
  const send = { method, headers: { Accept: "application/json", ...headers }, signal, credentials: "same-origin", redirect: "error" };
  if (csrf && method !== "GET") send.headers["Ringfence-CSRF"] = csrf;
  if (body !== undefined) {
    send.headers["Content-Type"] = "application/json";
    send.body = JSON.stringify(body);
  } else if (raw !== undefined) {
    send.headers["Content-Type"] ??= "application/octet-stream";
    send.body = raw;
  }
  if (method === "POST" && !send.headers["Idempotency-Key"]) send.headers["Idempotency-Key"] = crypto.randomUUID();
  const answer = await fetch(path, send);
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => null));
  if (response) return answer;
  return answer.status === 204 ? null : answer.json();
}

export const get = (path, options) => call("GET", path, options);
export const post = (path, body, options) => call("POST", path, { body: body ?? {}, ...options });
export const put = (path, raw, options) => call("PUT", path, { raw, ...options });
export const remove = (path, options) => call("DELETE", path, options);

/** A path with its parts and its query encoded: `at("/v1/sessions", [id, "files"], {path})`. */
export function at(base, parts = [], query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = filled.length ? `?${new URLSearchParams(filled)}` : "";
  return [base, ...parts.map(encodeURIComponent)].join("/") + search;
}
