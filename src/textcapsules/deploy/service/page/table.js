// The file tab: reads a CSV file, labels its rows, gives it back with labels.

import { predict } from "./api.js";
import { formatCsv, parseCsv, separatorOf, withoutFormulas } from "./csv.js";
import { decideRow, ruleOf } from "./decide.js";
import { byId, counted, make } from "./dom.js";
import { Results } from "./results.js";
import { Row } from "./row.js";

const PREDICTED = "predicted";
const BOM = "\ufeff";

export class Table {
  /** @param settings - { model, threshold, limits }, shared and changed by the page */
  constructor(settings, methodChanged) {
    this.settings = settings;
    this.labelled = null; // scores and counts of every row, once all are labelled
    this.row = new Row(settings, (row) => this.textOf(row), methodChanged);
    this.results = new Results(settings, (row, walk) => this.row.open(row, walk));
    byId("file").addEventListener("change", (event) => this.open(event.target.files[0]));
    byId("column").addEventListener("change", () => this.forget());
    byId("label-rows").addEventListener("click", () => this.label());
    byId("cancel").addEventListener("click", () => this.job?.abort());
    byId("download").addEventListener("click", () => this.download());
    this.listenToDrops(byId("drop"));
  }

  listenToDrops(place) {
    for (const name of ["dragover", "dragleave", "drop"]) {
      place.addEventListener(name, (event) => {
        event.preventDefault();
        place.classList.toggle("over", name === "dragover");
        if (name === "drop") this.open(event.dataTransfer.files[0]);
      });
    }
  }

  say(message, { fault = false } = {}) {
    byId("table-status").textContent = message;
    byId("table-status").classList.toggle("fault", fault);
  }

  async open(file) {
    byId("table-options").hidden = true;
    this.forget();
    if (!file) return;
    this.say(`Reading ${file.name}…`);
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
    this.labelled = null;
    byId("results").hidden = true;
    this.say("");
  }

  async label() {
    this.forget();
    const job = (this.job = new AbortController());
    this.show({ running: true });
    try {
      this.labelled = await this.labelRows(job.signal);
      this.decide();
      byId("results").hidden = false;
    } catch (error) {
      if (job.signal.aborted) this.say("Cancelled; nothing was kept.");
      else this.say(error.message, { fault: true });
    }
    this.show({ running: false });
  }

  /** Return a row's text, cut at the service's limit. */
  textOf(row) {
    const text = this.rows[row][this.column];
    const { characters } = this.settings.limits;
    return text.length <= characters ? text : Array.from(text).slice(0, characters).join("");
  }

  async labelRows(signal) {
    this.column = Number(byId("column").value);
    const { model, limits } = this.settings;
    const size = this.rows.length;
    const labelled = {
      scores: new Float32Array(size * model.labels.length), // as the model has them
      known: new Uint32Array(size),
      words: new Uint32Array(size),
      outside: new Uint8Array(size),
    };
    let done = 0;
    const started = performance.now();
    for (const texts of this.pieces(limits)) {
      for (const prediction of await predict({ model: model.name, texts }, signal)) {
        model.labels.forEach(({ name }, place) => {
          labelled.scores[done * model.labels.length + place] = prediction.scores[name];
        });
        labelled.known[done] = prediction.known;
        labelled.words[done] = prediction.words;
        labelled.outside[done] = Number(prediction.outside ?? false);
        done += 1;
      }
      byId("progress").value = done / size;
      const left = ((performance.now() - started) / done) * (size - done);
      const wait = left > 3000 ? `, about ${duration(left / 1000)} left` : "";
      this.say(`${done.toLocaleString("en")} of ${counted(size, "row", "rows")}${wait}`);
    }
    return labelled;
  }

  /** Cut the texts into requests that keep within the service's limits. */
  *pieces({ texts: mostTexts, bytes: mostBytes }) {
    const encoder = new TextEncoder();
    let piece = [];
    let filled = 0;
    for (let row = 0; row < this.rows.length; row += 1) {
      const text = this.textOf(row);
      const size = 8 + encoder.encode(JSON.stringify(text)).length;
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

  show({ running }) {
    byId("progress").value = 0;
    byId("progress").hidden = !running;
    byId("cancel").hidden = !running;
    byId("label-rows").disabled = running;
  }

  /** Decide every row with the current threshold, and show what was found. */
  decide() {
    if (!this.labelled) return;
    const { model, threshold } = this.settings;
    const { scores, outside } = this.labelled;
    const rule = ruleOf(model, threshold);
    const size = model.labels.length;
    this.given = this.rows.map((_, row) => (outside[row] ? [] : decideRow(rule, scores, row * size)));
    const without = this.given.filter((places) => !places.length).length;
    this.say(`${counted(this.rows.length, "row", "rows")} labelled, ${without.toLocaleString("en")} of them without a label.`);
    this.results.show({ ...this.labelled, given: this.given, textOf: (row) => this.rows[row][this.column] });
  }

  download() {
    const { labels } = this.settings.model;
    const { scores, known, words } = this.labelled;
    const isFull = byId("with-scores").checked;
    const names = labels.map(({ name }) => name);
    const extra = (row) => {
      const own = Array.from(scores.subarray(row * names.length, (row + 1) * names.length), String);
      return [...own, String(known[row]), String(words[row])];
    };
    const rows = this.rows.map((cells, row) => [
      ...cells,
      this.given[row].map((place) => names[place]).join("; "),
      ...(isFull ? extra(row) : []),
    ]);
    const more = isFull ? [...names.map((name) => `score_${name}`), "words_known", "words_read"] : [];
    const written = [[...this.header, PREDICTED, ...more], ...rows];
    const safe = byId("excel-safe").checked ? withoutFormulas(written) : written;
    const content = this.bom + formatCsv(safe, this.separator);
    const url = URL.createObjectURL(new Blob([content], { type: "text/csv;charset=utf-8" }));
    const link = make("a", { href: url, download: this.name.replace(/(\.\w+)?$/, "_labelled$&") });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

const duration = (seconds) =>
  seconds < 90 ? counted(Math.round(seconds), "second", "seconds") : counted(Math.round(seconds / 60), "minute", "minutes");

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
