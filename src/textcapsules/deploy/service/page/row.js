// One row of a file in a dialog: its text with its reasons, and the way to the next.

import { byId } from "./dom.js";
import { Work } from "./work.js";

export class Row {
  /**
   * @param textOf - returns the text of a row
   * @param methodChanged - called when another method was chosen for the reasons
   */
  constructor(settings, textOf, methodChanged) {
    this.textOf = textOf;
    this.work = new Work(settings, { methodChanged });
    this.work.number(1, { alone: true });
    this.work.offer([]);
    this.work.area.readOnly = true;
    this.dialog = byId("row");
    byId("row-text").append(this.work.element);
    byId("row-close").addEventListener("click", () => this.dialog.close());
    byId("row-before").addEventListener("click", () => this.walk(-1));
    byId("row-after").addEventListener("click", () => this.walk(1));
  }

  /** Show a row; `walk(row, step)` returns the row that stands `step` further, or null. */
  open(row, walk) {
    this.walkFrom = walk;
    this.row = row;
    byId("row-title").textContent = `Row ${(row + 1).toLocaleString("en")}`;
    byId("row-before").disabled = walk(row, -1) === null;
    byId("row-after").disabled = walk(row, 1) === null;
    this.work.reset();
    this.work.setText(this.textOf(row));
    if (!this.dialog.open) this.dialog.showModal();
  }

  walk(step) {
    const next = this.walkFrom(this.row, step);
    if (next !== null) this.open(next, this.walkFrom);
  }

  get isOpen() {
    return this.dialog.open;
  }
}
