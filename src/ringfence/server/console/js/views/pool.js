// Sandboxes that wait and work, as charts that go on by themselves while the page is open.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { fill, h, table } from "../dom.js";

const CHARTS = [
  ["Ready, waiting for work", "idle"],
  ["At work", "busy"],
  ["Callers that wait", "waiting"],
  ["Sessions", "sessions"],
  ["Executions", "executions"],
];
const MOST = 120;

export async function pool(body, { signal }) {
  const samples = [];
  const charts = h("div", { class: "grid" });
  const counts = h("div");
  fill(body, charts, h("h3", {}, "By tenant"), counts);
  const draw = async () => {
    const { tenants, sessions, executions } = await get("/v1/pool", { signal });
    const rows = Object.entries(tenants).flatMap(([tenant, kinds]) => Object.entries(kinds).map(([kind, state]) => ({ tenant, kind, ...state })));
    const sum = (key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);
    samples.push({ idle: sum("idle"), busy: sum("busy"), waiting: sum("waiting"), sessions, executions });
    samples.splice(0, samples.length - MOST);
    fill(charts, CHARTS.map(([name, key]) => chart(name, samples.map((sample) => sample[key]))));
    fill(counts, table("Boxes by tenant", ["Tenant", "Tool", "Ready", "Starting", "At work", "Waiting", "Made", "Crashed"], rows.map((row) => [row.tenant, row.kind, row.idle, row.starting, row.busy, row.waiting, row.made, row.crashed].map(String)), { empty: "No pool has been started: it is made with the first execution without a session." }));
  };
  const clock = setInterval(() => draw().catch(() => {}), 2000);
  signal.addEventListener("abort", () => clearInterval(clock));
  await draw();
}
