// One text: written on the left with its phrases marked as you type, its labels on the right.

import { predict } from "./api.js";
import { decide, rank, thresholdOf } from "./decide.js";
import { byId, debounced, make } from "./dom.js";
import { BACKGROUND, Reasons, inWords } from "./explanation.js";
import { claimsAt, markedText, moved } from "./highlight.js";
import { chip, placeOf, setStyle, sign, tagOf } from "./labels.js";
import { aboutPart, givenLabels, otherLabels } from "./panel.js";

const TYPING_PAUSE = 120; // milliseconds
const SLIDING_PAUSE = 300;
let count = 0;

export class Work {
  /**
   * @param settings - { model, threshold, method }, shared and changed by the page
   * @param actions - { remove(work), methodChanged() }
   */
  constructor(settings, actions, { text = "", label = "" } = {}) {
    this.settings = settings;
    this.actions = actions;
    this.selected = label; // a label's name, BACKGROUND, or "" for all labels given
    this.changing = ""; // the label whose change is shown
    this.long = false;
    this.forget(); // sets, among others, the label on which the pointer rests: hovered
    this.element = byId("work").content.firstElementChild.cloneNode(true);
    this.find = (selector) => this.element.querySelector(selector);
    this.area = this.find("textarea");
    this.area.id = `text-${(count += 1)}`;
    this.area.value = text;
    this.listen();
    this.renderText();
  }

  get text() {
    return this.area.value;
  }

  get model() {
    return this.settings.model;
  }

  get isSingle() {
    return this.settings.threshold === null && this.model.task === "single-label";
  }

  forget() {
    this.prediction = null;
    this.reasons = null;
    this.changes = null;
    this.changing = "";
    this.hovered = "";
    this.given = [];
    this.fault = "";
  }

  /** Forget what another model said. */
  reset() {
    this.forget();
    this.selected = "";
    this.changing = "";
  }

  listen() {
    const ask = debounced(() => this.ask(), TYPING_PAUSE);
    this.askAnew = debounced(() => {
      const isLong = this.reasons?.sentences.length > 1;
      if (isLong && this.decidedBy !== this.settings.threshold) this.ask();
    }, SLIDING_PAUSE);
    this.area.addEventListener("input", () => {
      this.selected = "";
      this.changing = "";
      this.element.setAttribute("aria-busy", "true"); // until the answer to this text
      this.renderText();
      ask();
    });
    this.find(".examples").addEventListener("change", (event) => {
      this.setText(event.target.value);
      event.target.selectedIndex = 0;
    });
    this.find(".remove").addEventListener("click", () => this.actions.remove(this));
    // The labels are made anew with every answer, so that their list listens for them.
    const right = this.find(".right");
    right.addEventListener("pointerover", (event) => this.preview(event.target.closest(".label")?.dataset.name ?? ""));
    right.addEventListener("pointerleave", () => this.preview(""));
    const pane = this.find(".pane");
    pane.addEventListener("pointermove", (event) => this.point(event));
    pane.addEventListener("pointerleave", () => this.tell(null));
    this.area.addEventListener("click", (event) => this.point(event));
    this.area.addEventListener("keyup", (event) => {
      if (event.key === "Escape") this.tell(null);
      else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") this.tellAtCaret();
    });
  }

  setText(text) {
    this.area.value = text;
    this.selected = "";
    this.changing = "";
    this.renderText();
    return this.ask();
  }

  /** Number the text among the others, for eyes and screen readers. */
  number(place, { alone }) {
    const name = alone ? "Text" : `Text ${place}`;
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
    this.find(".examples").hidden = !groups.length;
    this.find(".examples").replaceChildren(make("option", { value: "" }, "Examples…"), ...options);
  }

  /** Ask the service about the text; a newer question cancels an older one. */
  async ask() {
    this.question?.abort();
    const question = (this.question = new AbortController());
    const { text } = this;
    if (!text.trim()) {
      this.forget();
      this.element.removeAttribute("aria-busy");
      this.render();
      return;
    }
    this.element.setAttribute("aria-busy", "true");
    try {
      const [prediction] = await predict(this.request(text), question.signal);
      this.forget();
      this.prediction = { ...prediction, text };
      this.decidedBy = this.settings.threshold;
      this.reasons = prediction.explanation ? new Reasons(prediction.explanation) : null;
    } catch (error) {
      if (question.signal.aborted) return;
      this.forget();
      this.fault = error.message;
    }
    this.element.removeAttribute("aria-busy");
    this.render();
  }

  request(text) {
    const { name, explains } = this.model;
    const { threshold, method } = this.settings;
    const request = { model: name, texts: [text], explain: explains };
    if (threshold !== null) request.threshold = threshold; // sentences and changes go by it
    if (explains && method) request.method = method;
    return request;
  }

  /** Ask for the smallest deletions that take the given labels away; show that of one. */
  async askChange(name) {
    this.changing = this.changing === name ? "" : name;
    this.render();
    if (!this.changing || this.changes) return;
    const { prediction } = this;
    try {
      const [found] = await predict({ ...this.request(prediction.text), changes: true });
      if (this.prediction !== prediction) return; // another text is shown by now
      this.changes = found.explanation.labels;
    } catch (error) {
      if (this.prediction !== prediction) return;
      this.changing = "";
      this.find(".answer").textContent = error.message;
    }
    this.render();
  }

  /** Decide anew by another threshold; ask for what depends on it once the slider rests. */
  decideAnew() {
    this.changes = null;
    this.changing = "";
    this.render();
    this.askAnew();
  }

  select(name) {
    this.selected = this.selected === name ? "" : name;
    this.hovered = "";
    this.changing = "";
    this.render();
  }

  lengthen() {
    this.long = !this.long;
    this.render();
  }

  useMethod(method) {
    this.settings.method = method;
    this.actions.methodChanged();
  }

  /** Show only the phrases of a label while the pointer rests on it. */
  preview(name) {
    if (this.hovered === name) return;
    this.hovered = name;
    this.renderText();
  }

  /** Show the prediction with the current threshold; the focus stays where it is. */
  render() {
    const active = document.activeElement;
    const key = this.element.contains(active) ? active.dataset.key : undefined;
    const { model, prediction } = this;
    const readable = prediction?.readable ?? false;
    const decides = readable && !prediction.outside;
    this.given = decides ? decide(model, prediction.scores, this.settings.threshold) : [];
    this.renderAnswer();
    const { items, more } = readable ? otherLabels(this) : { items: [], more: [] };
    this.find(".given-labels").replaceChildren(...(readable ? givenLabels(this) : []));
    this.find(".unit").hidden = !this.reasons || !(this.given.length || this.selected);
    if (this.reasons) this.find(".unit").textContent = this.reasons.legend;
    this.find(".why-not").hidden = !items.length;
    this.find(".other-labels").replaceChildren(...items);
    this.find(".more").replaceChildren(...more);
    this.find(".about").replaceChildren(...(prediction?.words ? aboutPart(this) : []));
    this.renderText();
    this.renderSentences();
    if (key) [...this.element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)?.focus();
  }

  /** Say what was found in one line; a screen reader reads it when it changes. */
  renderAnswer() {
    const { title, more } = this.answerText();
    const answer = this.find(".answer");
    answer.classList.toggle("fault", Boolean(this.fault));
    answer.dataset.state = this.state;
    if (answer.textContent !== title + more) {
      answer.replaceChildren(make("b", {}, title), make("span", { class: this.given.length ? "heard" : "" }, more));
    }
  }

  get state() {
    const { prediction } = this;
    if (this.fault) return "fault";
    if (!prediction) return "empty";
    if (!prediction.readable) return "unreadable";
    if (prediction.outside) return "outside";
    return this.given.length ? "given" : "none";
  }

  answerText() {
    const { prediction, model, given } = this;
    switch (this.state) {
      case "fault":
        return { title: "No answer", more: this.fault };
      case "empty":
        return { title: "No text yet", more: "Write or paste one, or pick an example." };
      case "unreadable":
        return { title: "No label: the model knows no word of this text", more: "It may be in another language than the texts the model learned from." };
      case "outside":
        return { title: "No label: outside my topics", more: "This text is unlike the texts that the model learned from, so its scores mean little." };
      case "none": {
        const [nearest] = rank(model, prediction.scores);
        const missing = thresholdOf(model, nearest, this.settings.threshold) - prediction.scores[nearest];
        return { title: "No label: no score is high enough", more: `The nearest is ${nearest}; it lacks ${missing.toFixed(2)}.` };
      }
      default:
        return { title: given.length === 1 ? "1 label" : `${given.length} labels`, more: `: ${inWords(given)}` };
    }
  }

  /** The labels whose phrases are marked now. */
  get shown() {
    const one = this.hovered || this.selected;
    return one ? [one] : this.given;
  }

  renderText() {
    const { text, prediction, reasons, model } = this;
    const isCurrent = prediction?.text === text;
    const shift = (phrases) => (isCurrent ? phrases : moved(phrases, prediction.text, text));
    const layers = (reasons ? this.shown : []).map((name) => ({
      name,
      place: placeOf(model, name),
      tag: tagOf(model, placeOf(model, name)),
      phrases: shift(reasons.of(name).phrases),
    }));
    const deleted = (isCurrent && this.changes?.[this.changing]?.change?.deleted) || [];
    const isCut = isCurrent && reasons && reasons.tokens.length >= model.max_tokens;
    const unread = isCut ? reasons.tokens.at(-1).end : Infinity;
    this.find(".marked").replaceChildren(...markedText(text, layers, { deleted, unread }));
    this.find(".cut").hidden = !isCut;
    if (isCut) this.find(".cut").textContent = `The model reads the first ${model.max_tokens} words; the hatched rest is not read.`;
    this.renderKey(layers);
    this.tell(null);
  }

  /** Show which tag is which label, for the marks in the text. */
  renderKey(layers) {
    const items = layers.map(({ name, place }) => {
      const shown = name === BACKGROUND ? "background" : name;
      return setStyle(make("span", {}, sign(this.model, place), shown), place);
    });
    this.find(".key").hidden = !items.length;
    if (items.length) this.find(".key").replaceChildren(...items, make("span", { class: "hint" }, "deeper colour: stronger"));
  }

  /** List the sentences of a longer text with the labels they carry. */
  renderSentences() {
    const sentences = this.reasons?.sentences ?? [];
    this.find(".sentences").hidden = sentences.length < 2 || !this.given.length;
    if (this.find(".sentences").hidden) return;
    const points = Array.from(this.prediction.text);
    const items = sentences.map((sentence) => {
      const names = sentence.labels.filter((name) => this.given.includes(name));
      const chips = names.map((name) => chip(this.model, placeOf(this.model, name)));
      const text = points.slice(sentence.start, sentence.end).join("");
      const button = make(
        "button",
        { type: "button" },
        make("span", { class: "carries" }, ...(chips.length ? chips : [make("span", { class: "hint" }, "no label")])),
        make("bdi", {}, text),
      );
      if (names.length) setStyle(button, placeOf(this.model, names[0]));
      button.addEventListener("pointerenter", () => this.light(sentence));
      button.addEventListener("pointerleave", () => this.light(null));
      button.addEventListener("click", () => this.goTo(sentence));
      return make("li", {}, button);
    });
    this.find(".sentences ol").replaceChildren(...items);
  }

  /** Light up the marks inside a stretch; tell what a phrase means. */
  light(stretch, isFocus = false) {
    const marks = [...this.find(".marked").querySelectorAll("mark")];
    const inside = (mark) => stretch && stretch.start <= Number(mark.dataset.start) && Number(mark.dataset.end) <= stretch.end;
    for (const mark of marks) mark.classList.toggle("lit", Boolean(inside(mark)));
    const first = marks.find(inside);
    if (first && isFocus) first.scrollIntoView({ block: "nearest" });
    if (stretch?.name) this.tell(first, [{ ...stretch, place: placeOf(this.model, stretch.name) }]);
    else this.tell(null);
  }

  /** Select a stretch in the text area, which also brings it into view. */
  goTo({ start, end }) {
    const points = Array.from(this.text);
    const length = (part) => part.join("").length; // in UTF-16, as text areas count
    const from = length(points.slice(0, start));
    this.area.focus();
    this.area.setSelectionRange(from, from + length(points.slice(start, end)));
  }

  point({ clientX, clientY }) {
    const found = document.elementsFromPoint(clientX, clientY).find((each) => each.tagName === "MARK");
    this.tell(found ?? null, claimsAt(found));
  }

  tellAtCaret() {
    const place = Array.from(this.text.slice(0, this.area.selectionStart)).length;
    const marks = [...this.find(".marked").querySelectorAll("mark")];
    const mark = marks.find(({ dataset }) => Number(dataset.start) <= place && place < Number(dataset.end));
    this.tell(mark ?? null, claimsAt(mark));
  }

  /** Show the labels and strengths of a phrase beside its mark. */
  tell(mark, claims = []) {
    const tip = this.find(".tip");
    tip.hidden = !mark || !claims.length;
    if (tip.hidden || !this.reasons) return;
    const lines = claims.map(({ name, place, text, strength }) =>
      make("li", {}, sign(this.model, place), make("span", {}, make("bdi", {}, `“${text}”: `), this.reasons.describe(strength, name))),
    );
    tip.replaceChildren(...lines);
    const pane = this.find(".pane").getBoundingClientRect();
    const box = mark.getClientRects()[0] ?? mark.getBoundingClientRect();
    const left = Math.max(0, Math.min(box.left - pane.left, pane.width - tip.offsetWidth));
    tip.style.left = `${left}px`;
    tip.style.top = `${box.bottom - pane.top + 8}px`;
  }
}
