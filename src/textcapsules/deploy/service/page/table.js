// Reads a CSV file and gives it back with labels.

import { predict } from "./api.js";
import { formatCsv, parseCsv, separatorOf, withoutFormulas } from "./csv.js";
import { decide } from "./decide.js";
import { byId, counted, make } from "./dom.js";
import { setStyle } from "./highlight.js";

const PREDICTED = "predicted";
const COUNTS = { words_known: "known", words_read: "words" }; // a column's name, a reply's field
const BOM = "\ufeff";

export class Table {
  /** @param settings - { model, threshold, limits }, shared and changed by the page */
  constructor(settings) {
    this.settings = settings;
    this.predictions = null; // of every row, once all are labelled
    byId("file").addEventListener("change", (event) => this.open(event.target.files[0]));
    byId("column").addEventListener("change", () => this.forget());
    byId("label-rows").addEventListener("click", () => this.label());
    byId("cancel").addEventListener("click", () => this.job?.abort());
    byId("download").addEventListener("click", () => this.download());
  }

  say(message, { fault = false } = {}) {
    byId("table-status").textContent = message;
    byId("table-status").classList.toggle("fault", fault);
  }

  async open(file) {
    byId("table-options").hidden = true;
    this.forget();
    if (!file) return;
    try {
      await this.read(file);
    } catch (error) {
      this.say(`${file.name}: ${error.message}.`, { fault: true });
      return;
    }
    const options = this.header.map((name, place) => make("option", { value: place }, name));
    byId("column").replaceChildren(...options);
    byId("column").value = String(guessColumn(this.header, this.rows));
    byId("table-options").hidden = false;
    this.say(`${file.name}: ${counted(this.rows.length, "row", "rows")}, ${counted(this.header.length, "column", "columns")}.`);
  }

  async read(file) {
    const text = decode(await file.arrayBuffer());
    this.bom = text.startsWith(BOM) ? BOM : "";
    const content = text.slice(this.bom.length);
    this.separator = separatorOf(content);
    const [header, ...rows] = parseCsv(content, this.separator);
    if (!rows.length) throw new Error("there must be a row below the header; there is none");
    const odd = rows.findIndex((row) => row.length !== header.length);
    if (odd >= 0) {
      throw new Error(`row ${odd + 1} must have ${counted(header.length, "cell", "cells")}, as the header has; it has ${rows[odd].length}`);
    }
    if (header.includes(PREDICTED)) {
      throw new Error(`there must be no column "${PREDICTED}" yet, where labels go; rename it first`);
    }
    Object.assign(this, { name: file.name, header, rows });
  }

  /** Drop the labels: another file, column or model is asked for. */
  forget() {
    this.job?.abort();
    this.predictions = null;
    byId("download").hidden = true;
    byId("table-counts").replaceChildren();
    this.say("");
  }

  async label() {
    this.forget();
    this.job = new AbortController();
    const { signal } = this.job;
    this.show({ running: true });
    try {
      this.predictions = await this.labelRows(signal);
      this.render();
    } catch (error) {
      if (signal.aborted) this.say("Cancelled; nothing was kept.");
      else this.say(error.message, { fault: true });
    }
    this.show({ running: false });
  }

  async labelRows(signal) {
    const column = Number(byId("column").value);
    const { characters } = this.settings.limits;
    const texts = this.rows.map((row) => Array.from(row[column]).slice(0, characters).join(""));
    const found = [];
    for (const piece of pieces(texts, this.settings.limits)) {
      const request = { model: this.settings.model.name, texts: piece };
      found.push(...(await predict(request, signal)));
      byId("progress").value = found.length / texts.length;
      this.say(`${found.length.toLocaleString("en")} of ${counted(texts.length, "row", "rows")}`);
    }
    return found;
  }

  show({ running }) {
    byId("progress").value = 0;
    byId("progress").hidden = !running;
    byId("cancel").hidden = !running;
    byId("label-rows").disabled = running;
    byId("download").hidden = running || !this.predictions;
  }

  given() {
    const { model, threshold } = this.settings;
    return this.predictions.map(({ scores }) => decide(model, scores, threshold));
  }

  /** Count the labels with the current threshold. */
  render() {
    if (!this.predictions) return;
    const counts = new Map(this.settings.model.labels.map(({ name }) => [name, 0]));
    let without = 0;
    for (const labels of this.given()) {
      without += labels.length === 0;
      for (const name of labels) counts.set(name, counts.get(name) + 1);
    }
    this.say(`${counted(this.predictions.length, "row", "rows")} labelled, ${without.toLocaleString("en")} of them without a label.`);
    const places = new Map([...counts.keys()].map((name, place) => [name, place]));
    const ranked = [...counts].filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
    const items = ranked.map(([name, n]) => {
      const count = make("small", {}, ` ${n.toLocaleString("en")}`);
      return setStyle(make("li", {}, make("span", { class: "chip" }, name, count)), places.get(name));
    });
    byId("table-counts").replaceChildren(...items);
  }

  download() {
    const isFull = byId("with-scores").checked;
    const names = isFull ? this.settings.model.labels.map(({ name }) => name) : [];
    const counts = isFull ? Object.keys(COUNTS) : [];
    const given = this.given();
    const rows = this.rows.map((row, n) => [
      ...row,
      given[n].join("; "),
      ...names.map((name) => String(this.predictions[n].scores[name])),
      ...counts.map((column) => String(this.predictions[n][COUNTS[column]])),
    ]);
    const header = [...this.header, PREDICTED, ...names.map((name) => `score_${name}`), ...counts];
    const table = [header, ...rows];
    const safe = byId("excel-safe").checked ? withoutFormulas(table) : table;
    const content = this.bom + formatCsv(safe, this.separator);
    const url = URL.createObjectURL(new Blob([content], { type: "text/csv;charset=utf-8" }));
    const link = make("a", { href: url, download: this.name.replace(/(\.\w+)?$/, "_labelled$&") });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

function decode(buffer) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(buffer);
  } catch {
    throw new Error("the file must be UTF-8; save it again in that encoding");
  }
}

/** Return a column called text, or the one with the longest cells. */
function guessColumn(header, rows) {
  const named = header.findIndex((name) => /^(text|message|body|content)$/i.test(name.trim()));
  if (named >= 0) return named;
  const lengths = header.map((_, place) =>
    rows.slice(0, 100).reduce((sum, row) => sum + row[place].length, 0),
  );
  return lengths.indexOf(Math.max(...lengths));
}

/** Cut texts into requests that keep within the service's limits. */
function* pieces(texts, { texts: mostTexts, bytes: mostBytes }) {
  let piece = [];
  let filled = 0;
  for (const text of texts) {
    const size = 8 + new TextEncoder().encode(JSON.stringify(text)).length;
    if (piece.length && (piece.length === mostTexts || filled + size > 0.9 * mostBytes)) {
      yield piece;
      piece = [];
      filled = 0;
    }
    piece.push(text);
    filled += size;
  }
  yield piece;
}
