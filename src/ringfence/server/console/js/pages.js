// The pages of the console: their names, their keys, and what shows them.

import { activity } from "./views/activity.js";
import { events } from "./views/events.js";
import { policy } from "./views/policy.js";
import { pool } from "./views/pool.js";
import { questions } from "./views/questions.js";
import { record } from "./views/record.js";
import { session } from "./views/session.js";
import { sessions } from "./views/sessions.js";
import { tokens } from "./views/tokens.js";

export const PAGES = [
  { key: "a", path: "/", name: "Activity", about: "What runs now, with its output as it comes.", view: activity },
  { key: "q", path: "/questions", name: "Questions", about: "What waits for a person. The first answer counts; no answer in time is a no.", view: questions },
  { key: "s", path: "/sessions", name: "Sessions", about: "Sandboxes that are open, with their files, changes and terminals.", view: sessions },
  { key: "v", path: "/events", name: "Violations and network", about: "What was refused and what went out, as it happens.", view: events },
  { key: "r", path: "/record", name: "Record", about: "Everything that was decided and run. The chain of records can be verified.", view: record },
  { key: "p", path: "/policy", name: "Policy", about: "What would be decided, by which rule; and what another policy would change.", view: policy },
  { key: "u", path: "/pool", name: "Pool", about: "Sandboxes that wait, and what they use.", view: pool },
  { key: "t", path: "/tokens", name: "Tokens", about: "Who may use this server, and for what.", view: tokens },
];

const SESSION = { path: "/sessions", name: "Session", about: "", view: session };

/** The page for a path; a path that nothing answers to leads to the first page. */
export function find(path) {
  const [place, ...rest] = path.slice(1).split("/");
  if (place === "sessions" && rest[0]) return { page: SESSION, parameters: { id: decodeURIComponent(rest[0]), part: rest[1] ?? "terminal" } };
  return { page: PAGES.find((page) => page.path === `/${place}`) ?? PAGES[0], parameters: {} };
}
