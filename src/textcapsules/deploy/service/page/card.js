// One text: where it is written, its labels, and the phrases that spoke for them.

import { predict } from "./api.js";
import { decide, thresholdOf, rank } from "./decide.js";
import { byId, counted, debounced, make, setProperties, percent } from "./dom.js";
import { setStyle, markedText, pickColours, phraseItems } from "./highlight.js";

const ORPHAN = "(orphan)";
const SHORT_LIST = 6;
let cardCount = 0;

export class Card {
  /**
   * @param settings - { model, threshold }, shared and changed by the page
   * @param actions - { remove(card), refused(error) }
   */
  constructor(settings, actions, { text, label }) {
    this.settings = settings;
    this.actions = actions;
    this.selected = label; // a label's name, ORPHAN, or "" for all labels given
    this.prediction = null;
    this.colours = new Map(); // of the labels given, by place
    this.long = false;
    this.rows = new Map();
    this.element = byId("card").content.firstElementChild.cloneNode(true);
    this.find = (selector) => this.element.querySelector(selector);
    this.area = this.find("textarea");
    this.area.id = `text-${(cardCount += 1)}`;
    this.area.value = text;
    this.listen();
  }

  get text() {
    return this.area.value;
  }

  listen() {
    const ask = debounced(() => this.ask(), 200);
    this.area.addEventListener("input", () => {
      this.selected = "";
      this.fit();
      ask();
    });
    this.find(".examples").addEventListener("change", (event) => {
      this.area.value = event.target.value;
      event.target.selectedIndex = 0;
      this.selected = "";
      this.fit();
      this.ask();
    });
    this.find(".remove").addEventListener("click", () => this.actions.remove(this));
    this.find(".more").addEventListener("click", () => {
      this.long = !this.long;
      this.render();
    });
    this.find(".orphan").addEventListener("click", () => this.select(ORPHAN));
  }

  /** Number the card among the others, for eyes and screen readers. */
  number(place, { alone }) {
    const name = `Text ${place}`;
    this.find("h2").replaceChildren(make("label", { for: this.area.id }, name));
    this.find(".remove").hidden = alone;
    this.find(".remove").setAttribute("aria-label", `Remove ${name.toLowerCase()}`);
    this.find(".examples").setAttribute("aria-label", `Example for ${name.toLowerCase()}`);
    this.element.setAttribute("aria-label", name);
  }

  offer(groups) {
    const options = groups.map(({ title, texts }) =>
      make("optgroup", { label: title }, ...texts.map((text) => make("option", { value: text }, text))),
    );
    this.find(".examples").replaceChildren(make("option", { value: "" }, "Pick an example…"), ...options);
  }

  /** Let the text area grow with its text. */
  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight + 2, 480)}px`;
  }

  /** Ask the service about the text; a newer question cancels an older one. */
  async ask() {
    this.question?.abort();
    const question = (this.question = new AbortController());
    const { text } = this;
    if (!text.trim()) {
      this.prediction = null;
      this.render();
      return;
    }
    this.element.setAttribute("aria-busy", "true");
    try {
      const { name, explains } = this.settings.model;
      const request = { model: name, texts: [text], explain: explains };
      const [prediction] = await predict(request, question.signal);
      this.prediction = { ...prediction, text };
      this.render();
    } catch (error) {
      if (question.signal.aborted) return;
      this.prediction = null;
      this.render(error.message);
      this.actions.refused(error);
    }
    this.element.removeAttribute("aria-busy");
  }

  select(name) {
    this.selected = this.selected === name ? "" : name;
    this.render();
  }

  /** Show the prediction with the current threshold. */
  render(fault = "") {
    const { model, threshold } = this.settings;
    const readable = this.prediction?.readable ?? false;
    const given = readable ? decide(model, this.prediction.scores, threshold) : [];
    this.colours = pickColours(given.map((name) => this.place(name)).sort((a, b) => a - b));
    this.showAnswer(given, fault);
    this.showKnown();
    const explained = readable && Boolean(this.prediction.explanation);
    this.find(".labels").hidden = !readable;
    for (const part of [".reasons", ".shares"]) this.find(part).hidden = !explained;
    this.find(".more").hidden = !readable || model.labels.length <= SHORT_LIST + 1;
    if (readable) this.showLabels(given);
    if (explained) this.showReasons(given);
    if (explained) this.showShares();
  }

  showAnswer(given, fault) {
    const answer = this.find(".answer");
    answer.classList.toggle("fault", Boolean(fault));
    let content = [fault];
    if (!fault && !this.prediction) content = ["No text yet."];
    else if (!fault && !this.prediction.readable) content = ["No label: the model knows no word of this text."];
    else if (!fault && !given.length) content = ["No label: no score is high enough."];
    else if (!fault) content = given.flatMap((name) => [this.chip(name), " "]);
    const shown = make("p", {}, ...content);
    // A screen reader reads only what has changed.
    if (shown.textContent !== answer.textContent) answer.replaceChildren(...shown.childNodes);
  }

  /** Say how much of the text the model knows: few known words are little evidence. */
  showKnown() {
    const { known, words } = this.prediction ?? {};
    this.find(".known").hidden = !words;
    if (!words) return;
    const all = this.settings.model.reads === "characters" ? ["character", "characters"] : ["word", "words"];
    this.find(".known").textContent = `${known.toLocaleString("en")} of ${counted(words, ...all)} known`;
  }

  chip(name) {
    const score = make("small", {}, ` ${this.prediction.scores[name].toFixed(2)}`);
    return setStyle(make("span", { class: "chip" }, name, score), this.place(name), this.colour(name));
  }

  place(name) {
    return this.settings.model.labels.findIndex((label) => label.name === name);
  }

  colour(name) {
    return this.colours.get(this.place(name));
  }

  showLabels(given) {
    const { model, threshold } = this.settings;
    const { scores } = this.prediction;
    const ranked = rank(model, scores);
    const isShort = !this.long && ranked.length > SHORT_LIST + 1;
    const shown = isShort ? ranked.slice(0, Math.max(SHORT_LIST, given.length)) : ranked;
    const rows = shown.map((name) => {
      const row = setStyle(this.row(name), this.place(name), this.colour(name));
      const isGiven = given.includes(name);
      row.classList.toggle("given", isGiven);
      setProperties(row, { score: scores[name], threshold: thresholdOf(model, name, threshold) });
      row.querySelector(".value").textContent = scores[name].toFixed(2);
      row.querySelector(".state").textContent = isGiven ? "✓" : "";
      row.querySelector(".state-text").textContent = isGiven ? ", given" : ", not given";
      row.querySelector("button").setAttribute("aria-pressed", String(this.selected === name));
      return row;
    });
    const list = this.find(".labels");
    if (rows.some((row, n) => row !== list.children[n]) || rows.length !== list.children.length) {
      list.replaceChildren(...rows);
    }
    const more = this.find(".more");
    more.textContent = isShort ? `Show all ${counted(ranked.length, "label", "labels")}` : "Show fewer labels";
    more.setAttribute("aria-expanded", String(!isShort));
  }

  /** Return the row of a label; it is made once, so that it keeps the focus. */
  row(name) {
    if (!this.rows.has(name)) {
      const button = make(
        "button",
        { type: "button", title: `Show which phrases spoke for ${name}` },
        make("span", { class: "state", "aria-hidden": "true" }),
        make("span", { class: "name" }, name),
        make("span", { class: "bar", "aria-hidden": "true" }, make("i")),
        make("span", { class: "value" }),
        make("span", { class: "state-text" }),
      );
      button.addEventListener("click", () => this.select(name));
      this.rows.set(name, make("li", {}, button));
    }
    return this.rows.get(name);
  }

  /** Forget the rows of another model. */
  reset() {
    this.rows.clear();
    this.prediction = null;
    this.selected = "";
  }

  showReasons(given) {
    const { text, explanation } = this.prediction;
    const names = this.selected ? [this.selected] : given;
    const layers = names.map((name) => this.layer(name));
    const cut = explanation.tokens.length >= this.settings.model.max_tokens;
    this.find(".reasons h3").textContent = reasonsTitle(names);
    this.find(".marked").replaceChildren(...markedText(text, explanation.tokens, layers, { cut }));
    this.find(".phrases").replaceChildren(...phraseItems(layers, this.selected ? 8 : 3));
  }

  layer(name) {
    const { labels, background: orphan } = this.prediction.explanation;
    const spoken = (name === ORPHAN ? orphan : labels[name]) ?? { tokens: [], phrases: [] };
    const compared = name === ORPHAN ? [spoken] : Object.values(labels);
    let scale = 1e-9; // the strongest token of all gets the darkest tint
    for (const { tokens } of compared) for (const strength of tokens) scale = Math.max(scale, strength);
    const shown = name === ORPHAN ? "orphan" : name;
    return { name: shown, place: this.place(name), colour: this.colour(name), ...spoken, scale };
  }

  showShares() {
    const { background: orphan, background_share: orphanShare, unclaimed: leak } = this.prediction.explanation;
    if (leak === null) this.find(".shares").hidden = true; // no capsules, no votes
    const shares = [Math.max(0, 1 - orphanShare - leak), orphanShare, leak];
    this.find(".stack").querySelectorAll("i").forEach((part, n) => setProperties(part, { share: shares[n] }));
    this.find(".legend").replaceChildren(
      ...["labels", "orphan", "nobody"].map((name, n) =>
        make("span", { class: `to-${name}` }, `${percent(shares[n])} ${n === 2 ? "to nobody (leak)" : `to the ${name}`}`),
      ),
    );
    const button = this.find(".orphan");
    button.hidden = orphan === null;
    button.setAttribute("aria-pressed", String(this.selected === ORPHAN));
  }
}

function reasonsTitle(names) {
  if (!names.length) return "No label was given. Pick one to see which phrases spoke for it";
  if (names[0] === ORPHAN) return "What went to the orphan, the background category";
  return `Phrases that spoke for ${names.join(", ")}`;
}
