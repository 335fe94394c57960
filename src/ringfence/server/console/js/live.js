// What happens now: one stream of events from the server, for every page that is interested.

import { get } from "./api.js";

export class Live extends EventTarget {
  #source = null;
  #open = new Map();

  /** Open questions by their id. */
  get questions() {
    return this.#open;
  }

  start() {
    this.#source = new EventSource("/v1/events");
    this.#source.addEventListener("open", () => {
      this.#tell("state", "live");
      this.#catchUp();
    });
    this.#source.addEventListener("error", () => this.#tell("state", "connection lost, trying again"));
    for (const kind of KINDS) {
      this.#source.addEventListener(kind, ({ data }) => {
        const event = JSON.parse(data);
        if (kind.startsWith("question.")) this.#note(kind, event);
        this.#tell(kind, event);
      });
    }
  }

  // Whoever was away sees what is still open.
  async #catchUp() {
    const page = await get("/v1/questions?state=open").catch((problem) => {
      if (problem.status !== 403) throw problem; // this token does not answer questions
      return { items: [] };
    });
    this.#open = new Map(page.items.map((question) => [question.id, question]));
    this.#tell("questions", this.#open.size);
    this.#tell("question.list", null);
  }

  #note(kind, event) {
    if (kind === "question.asked") this.#open.set(event.id, event);
    else this.#open.delete(event.id);
    this.#tell("questions", this.#open.size);
  }

  #tell(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}

const KINDS = [
  "execution.started",
  "execution.output",
  "execution.ended",
  "question.asked",
  "question.answered",
  "session.created",
  "session.ended",
  "violation",
  "network",
  "gap",
];
