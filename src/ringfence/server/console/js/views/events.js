// Violations and network requests as they happen.

import { get } from "../api.js";
import { fill, h, table } from "../dom.js";
import { bytes, moment } from "../format.js";
import { refusal } from "../refusal.js";
import { visible } from "../visible.js";

const MOST = 200;

export async function events(body, { live, signal }) {
  const refused = [];
  const requests = [];
  const violations = h("div");
  const network = h("div");
  fill(body, h("h3", {}, "Violations"), violations, h("h3", {}, "Network"), network);

  const draw = () => {
    fill(
      violations,
      table(
        "Violations, newest first",
        ["When", "Kind", "Severity", "What was refused, and what would allow it", "Session"],
        refused.map((one) => [moment(one.at), one.type, h("span", { class: one.severity === "critical" || one.severity === "high" ? "bad" : "" }, one.severity), visible(refusal(one)), one.session_id ?? "–"]),
        { empty: "Nothing was refused." },
      ),
    );
    fill(
      network,
      table(
        "Requests, newest first",
        ["When", "Verdict", "Request", "Rule", "Out", "In", "Session"],
        requests.map((one) => [
          moment(one.at),
          h("span", { class: `verdict ${one.verdict}` }, one.verdict ?? "–"),
          visible(`${one.method ?? one.door ?? ""} ${one.host ?? ""}${one.port ? `:${one.port}` : ""}${one.path ?? ""}${one.status ? ` ${one.status}` : ""}`),
          visible(one.rule ?? "–"),
          bytes(one.bytes_out),
          bytes(one.bytes_in),
          one.session_id ?? "–",
        ]),
        { empty: "Nothing went out." },
      ),
    );
  };
  const take = (list) => ({ detail }) => {
    list.unshift(detail);
    list.length = Math.min(list.length, MOST);
    draw();
  };
  live.addEventListener("violation", take(refused), { signal });
  live.addEventListener("network", take(requests), { signal });
  const page = await get("/v1/violations?limit=100", { signal });
  refused.push(...page.items);
  draw();
}
