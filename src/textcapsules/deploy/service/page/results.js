// What was found in a file: totals, a bar per label that also filters, and pages of rows.

import { byId, counted, make, percent, setProperties } from "./dom.js";
import { chip, setStyle, sign } from "./labels.js";

const PAGE = 25; // rows
const SHOWN = 240; // characters of a text
// Rows without a label, by the reason; places of labels are 0 and more.
const NONE = -1;
const OUTSIDE = -2;
const UNREAD = -3;
const REASONS = {
  [NONE]: "no label: no score is high enough",
  [OUTSIDE]: "no label: outside my topics",
  [UNREAD]: "no label: no known word",
};

export class Results {
  /** @param openRow - called with a row, and a function that walks from row to row */
  constructor(settings, openRow) {
    this.settings = settings;
    this.openRow = openRow;
    this.filter = null;
    this.page = 0;
    byId("sort").addEventListener("change", () => this.arrange());
    byId("page-before").addEventListener("click", () => this.turn(-1));
    byId("page-after").addEventListener("click", () => this.turn(1));
    byId("rows").addEventListener("click", (event) => {
      const line = event.target.closest("tr");
      if (line) this.open(Number(line.dataset.row));
    });
  }

  /** @param found - { scores, known, words, outside, given, textOf(row) } */
  show(found) {
    if (this.found?.scores !== found.scores) this.filter = null; // of another file
    this.found = found;
    this.count();
    this.arrange();
  }

  get labels() {
    return this.settings.model.labels;
  }

  /** Return where a row belongs: its labels' places, or the reason why it has none. */
  groupsOf(row) {
    const { given, outside, known } = this.found;
    if (given[row].length) return given[row];
    if (!known[row]) return [UNREAD];
    return [outside[row] ? OUTSIDE : NONE];
  }

  count() {
    const size = this.found.given.length;
    const counts = new Map();
    let several = 0;
    for (let row = 0; row < size; row += 1) {
      several += this.found.given[row].length > 1;
      for (const group of this.groupsOf(row)) counts.set(group, (counts.get(group) ?? 0) + 1);
    }
    const without = [NONE, OUTSIDE, UNREAD].reduce((sum, group) => sum + (counts.get(group) ?? 0), 0);
    const totals = [
      [size, size === 1 ? "row" : "rows"],
      [size - without, "with a label"],
      [several, "with several labels"],
      [counts.get(OUTSIDE) ?? 0, "outside my topics"],
      [without, "without a label"],
    ];
    byId("totals").replaceChildren(
      ...totals.map(([n, name]) => make("li", {}, make("b", {}, n.toLocaleString("en")), ` ${name}`)),
    );
    // Labels by their count, then the rows without one.
    const groups = [...counts.keys()].sort((a, b) => (b >= 0) - (a >= 0) || counts.get(b) - counts.get(a));
    const most = Math.max(...counts.values());
    const focus = byId("chart").contains(document.activeElement) ? document.activeElement.dataset.group : null;
    byId("chart").replaceChildren(...groups.map((group) => make("li", {}, this.bar(group, counts.get(group), most, size))));
    if (focus !== null) [...byId("chart").querySelectorAll("button")].find((each) => each.dataset.group === focus)?.focus();
  }

  bar(group, n, most, size) {
    const name = group >= 0 ? this.labels[group].name : REASONS[group];
    const button = make(
      "button",
      { type: "button", "aria-pressed": String(this.filter === group), "data-group": group },
      ...(group >= 0 ? [sign(this.settings.model, group)] : []),
      make("span", { class: "name" }, name),
      make("span", { class: "bar", "aria-hidden": "true" }, make("i")),
      make("span", { class: "value" }, n.toLocaleString("en"), make("small", {}, ` ${percent(n / size)}`)),
    );
    button.addEventListener("click", () => {
      this.filter = this.filter === group ? null : group;
      this.count();
      this.arrange();
    });
    return setProperties(setStyle(button, group < 0 ? -1 : group), { score: n / most, threshold: 2 });
  }

  /** Return a row's confidence: its highest score, or that of the label picked. */
  confidence(row) {
    const { scores } = this.found;
    const size = this.labels.length;
    if (this.filter >= 0 && this.filter !== null) return scores[row * size + this.filter];
    let highest = 0;
    for (let place = row * size; place < (row + 1) * size; place += 1) highest = Math.max(highest, scores[place]);
    return highest;
  }

  /** Filter and sort the rows, and show their first page. */
  arrange() {
    const rows = [];
    for (let row = 0; row < this.found.given.length; row += 1) {
      if (this.filter === null || this.groupsOf(row).includes(this.filter)) rows.push(row);
    }
    const sort = byId("sort").value;
    if (sort !== "row") {
      const sign = sort === "high" ? -1 : 1;
      const confidence = new Map(rows.map((row) => [row, this.confidence(row)]));
      rows.sort((a, b) => sign * (confidence.get(a) - confidence.get(b)));
    }
    this.order = rows;
    this.page = 0;
    const named = this.filter === null ? "" : `: ${this.filter >= 0 ? this.labels[this.filter].name : REASONS[this.filter]}`;
    byId("rows-title").textContent = `${counted(rows.length, "row", "rows")}${named}`;
    this.renderPage();
  }

  turn(step) {
    this.page += step;
    this.renderPage();
  }

  renderPage() {
    const pages = Math.max(1, Math.ceil(this.order.length / PAGE));
    byId("page-place").textContent = `Page ${(this.page + 1).toLocaleString("en")} of ${pages.toLocaleString("en")}`;
    byId("page-before").disabled = this.page === 0;
    byId("page-after").disabled = this.page + 1 >= pages;
    const rows = this.order.slice(PAGE * this.page, PAGE * (this.page + 1));
    byId("rows").replaceChildren(...rows.map((row) => this.line(row)));
  }

  line(row) {
    const text = this.found.textOf(row);
    const cut = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
    const groups = this.groupsOf(row);
    const labels = groups.map((group) =>
      group >= 0 ? chip(this.settings.model, group) : make("span", { class: "hint" }, REASONS[group]),
    );
    const button = make("button", { type: "button", class: "link", dir: "auto" }, cut || "(empty)");
    button.setAttribute("aria-label", `Row ${row + 1}, show its reasons: ${cut}`);
    return make(
      "tr",
      { "data-row": row },
      make("td", { class: "value" }, (row + 1).toLocaleString("en")),
      make("td", {}, button),
      make("td", { class: "chips" }, ...labels),
      make("td", { class: "value" }, this.confidence(row).toFixed(2)),
    );
  }

  open(row) {
    const walk = (from, step) => {
      return this.order[this.order.indexOf(from) + step] ?? null;
    };
    this.openRow(row, walk);
  }
}
