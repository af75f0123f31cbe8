// Review: one text at a time, its labels as toggles, each decision saved before the next
// text is shown. All state is the service's, so a page loaded again goes on where it was.

import { make } from "./dom.js";
import { markedText } from "./highlight.js";
import { placeOf, setStyle, sign, tagOf } from "./labels.js";

const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const COMMANDS = "suq"; // as in the terminal
const KEYS = ["123456789", ...LETTERS].join("").split("").filter((key) => !COMMANDS.includes(key));

/** Show the review in an element; `api` has get(path) and post(path, value). */
export async function mount(element, { api, settings = {} }) {
  if (!document.querySelector('link[href="review.css"]')) {
    document.head.append(make("link", { rel: "stylesheet", href: "review.css" }));
  }
  const review = new Review(element, api, settings);
  await review.load();
  review.find(".review-text").focus();
  return review;
}

class Review {
  constructor(element, api, settings) {
    this.element = element;
    this.api = api;
    this.settings = settings;
    this.state = null;
    this.given = new Set();
    this.changed = false; // labels that are not the proposed ones
    this.busy = false;
    this.find = (selector) => element.querySelector(selector);
    element.replaceChildren(...this.build());
    document.addEventListener("keydown", (event) => this.press(event));
    // Another tab may have decided about this text.
    window.addEventListener("focus", () => this.refresh());
  }

  get shown() {
    return this.element.offsetParent !== null;
  }

  build() {
    const button = (name, key, action, kind = "") => {
      const made = make("button", { type: "button", class: `review-${name} ${kind}` }, key[0]);
      if (key[1]) made.append(" ", make("kbd", {}, key[1]));
      made.addEventListener("click", action);
      return made;
    };
    return [
      make("p", { class: "review-progress hint" }),
      make("div", { class: "review-columns" },
        make("p", { class: "review-text", dir: "auto", tabindex: "-1", "aria-label": "Text to review" }),
        make("ul", { class: "review-labels", "aria-label": "Labels of this text" })),
      make("div", { class: "actions" },
        button("accept", ["Accept", "Enter"], () => this.accept(), "strong"),
        button("skip", ["Skip", "s"], () => this.skip()),
        button("undo", ["Undo", "u"], () => this.undo())),
      make("p", { class: "review-fault fault", role: "alert" }),
      make("p", { class: "review-status hint", role: "status" }),
      make("div", { class: "actions" },
        button("recalibrate", ["Use new thresholds"], () => this.recalibrate()),
        button("export", ["Download what is reviewed"], () => this.download())),
      make("p", { class: "review-estimate hint" }),
    ];
  }

  /** Send a request and show the state it answers with; keep all as it is if it fails. */
  async send(request, status) {
    if (this.busy) return;
    this.busy = true;
    this.element.setAttribute("aria-busy", "true");
    try {
      this.show(await request());
      this.find(".review-fault").textContent = "";
      this.find(".review-status").textContent = status ?? "";
    } catch (error) {
      this.find(".review-fault").textContent = `Not saved: ${error.message} Try again.`;
    }
    this.busy = false;
    this.element.removeAttribute("aria-busy");
  }

  show(state) {
    this.state = state;
    this.changed = false;
    this.given = new Set(state.item?.labels);
    this.render();
  }

  /** Show what other tabs have decided, unless something is decided here meanwhile. */
  async refresh() {
    const before = this.state;
    if (!this.shown || this.busy || this.changed) return;
    try {
      const state = await this.api.get("v1/review");
      const isIdle = !this.busy && !this.changed && this.state === before;
      if (isIdle && state.last?.id !== before?.last?.id) this.show(state);
    } catch {
      // The next decision will say so.
    }
  }

  load() {
    return this.send(() => this.api.get("v1/review"));
  }

  decide(decision, status) {
    if (!this.state?.item) return undefined;
    const value = { text: this.state.item.text, ...decision };
    return this.send(() => this.api.post("v1/review/decision", value), status);
  }

  accept() {
    const labels = this.state?.labels.map(({ name }) => name).filter((name) => this.given.has(name));
    return this.decide({ labels }, `Saved: ${labels?.join(", ") || "no label"}.`);
  }

  skip() {
    return this.decide({ skip: true }, "Skipped.");
  }

  undo() {
    const id = this.state?.last?.id;
    if (!id) return undefined;
    return this.send(() => this.api.post("v1/review/undo", { id }), "Undone.");
  }

  async recalibrate() {
    const status = this.find(".review-status");
    try {
      const result = await this.api.post("v1/review/recalibrate", {});
      if (!result.is_taken) {
        status.textContent = "Kept the thresholds: new ones are estimated to be worse. Review more texts.";
        return;
      }
      await this.load();
      status.textContent = `New thresholds from ${result.texts} reviewed texts.`;
      const served = this.settings.model;
      if (served?.name === this.state.model) {
        for (const label of served.labels) {
          label.threshold = this.state.labels.find(({ name }) => name === label.name).threshold;
        }
      }
    } catch (error) {
      this.find(".review-fault").textContent = error.message;
    }
  }

  async download() {
    const token = sessionStorage.getItem("textcapsules-token");
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    try {
      const reply = await fetch("v1/review/export", { headers });
      if (!reply.ok) throw new Error((await reply.json()).error?.message ?? reply.statusText);
      const named = /filename="([^"]+)"/.exec(reply.headers.get("Content-Disposition") ?? "");
      const link = make("a", { href: URL.createObjectURL(await reply.blob()), download: named?.[1] ?? "reviewed.csv" });
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      this.find(".review-fault").textContent = error.message;
    }
  }

  press(event) {
    if (!this.shown || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
    const { target, key } = event;
    if (target.closest?.("input, textarea, select, [contenteditable]")) return;
    const inside = this.element.contains(target) || target === document.body;
    if (key === "Enter") {
      // Other buttons do what they say.
      if (!inside || (target.closest?.("button") && !target.closest(".review-labels, .review-accept"))) return;
      event.preventDefault();
      this.accept();
    } else if (key === "s") this.skip();
    else if (key === "u") this.undo();
    else if (KEYS.includes(key)) this.toggle(this.order()[KEYS.indexOf(key)]);
  }

  toggle(name) {
    if (!name || this.busy || !this.state?.item) return;
    if (!this.given.delete(name)) this.given.add(name);
    this.changed = true;
    this.find(".review-status").textContent = `${name}: ${this.given.has(name) ? "given" : "not given"}.`;
    this.renderItem();
  }

  /** Return the labels as they are listed: all in their order, or the strongest first. */
  order() {
    const names = this.state.labels.map(({ name }) => name);
    const scores = this.state.item?.scores;
    if (names.length <= KEYS.length || !scores) return names;
    return names.sort((a, b) => scores[b] - scores[a]);
  }

  render() {
    const { item, left, reviewed, skipped, last, estimate } = this.state;
    const why = item?.random ? "drawn at random" : "one of the least certain";
    const done = `${reviewed} reviewed, ${skipped} skipped, ${left} left`;
    this.find(".review-progress").textContent = item ? `${done}. This text is ${why}.` : `${done}. All texts are decided.`;
    this.find(".review-estimate").textContent = estimate ? `Expected: ${estimate}.` : "";
    this.find(".review-undo").disabled = !last;
    for (const name of ["accept", "skip"]) this.find(`.review-${name}`).disabled = !item;
    this.find(".review-recalibrate").disabled = reviewed < 5;
    this.renderItem();
  }

  renderItem() {
    const { item } = this.state;
    const focused = document.activeElement?.dataset.label;
    this.find(".review-text").replaceChildren(...(item ? this.markedText(item) : []));
    const rows = item ? this.order().map((name, number) => this.row(item, name, number)) : [];
    this.find(".review-labels").replaceChildren(...rows);
    if (focused) this.find(`[data-label="${CSS.escape(focused)}"]`)?.focus();
  }

  row(item, name, number) {
    const given = this.given.has(name);
    const toggle = make("button", { type: "button", "aria-pressed": String(given), "data-label": name },
      make("kbd", {}, KEYS[number] ?? ""),
      make("span", { class: "review-name" }, name),
      make("small", {}, item.scores[name].toFixed(2)));
    toggle.addEventListener("click", () => this.toggle(name));
    const phrases = given ? this.phrases(item, name) : [];
    const reasons = phrases.map(({ text }) => make("bdi", {}, `“${text}”`));
    const place = placeOf(this.state, name);
    toggle.children[0].after(sign(this.state, place));
    return setStyle(make("li", {}, toggle, make("span", { class: "review-reasons" }, ...reasons)), place);
  }

  phrases(item, name) {
    return (item.explanation?.labels[name]?.phrases ?? []).filter(({ strength }) => strength > 0);
  }

  /** Return the text as nodes, the phrases of the given labels marked. */
  markedText(item) {
    const layers = this.order()
      .filter((name) => this.given.has(name))
      .map((name) => {
        const place = placeOf(this.state, name);
        return { name, place, tag: tagOf(this.state, place), phrases: this.phrases(item, name) };
      });
    return markedText(item.text, layers);
  }
}
