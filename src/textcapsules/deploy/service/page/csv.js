// CSV as in RFC 4180: quotes, doubled quotes, line breaks inside cells.

/** Return which of comma, semicolon, tab and bar separates the cells of the first line. */
export function separatorOf(text) {
  const counts = { ",": 0, ";": 0, "\t": 0, "|": 0 };
  let quoted = false;
  for (const character of text) {
    if (character === '"') quoted = !quoted;
    else if (!quoted && character === "\n") break;
    else if (!quoted && character in counts) counts[character] += 1;
  }
  return Object.keys(counts).reduce((a, b) => (counts[b] > counts[a] ? b : a));
}

/** Return rows of cells; empty lines are left out. */
export function parseCsv(text, separator) {
  const rows = [];
  let place = 0;
  while (place < text.length) {
    if (isBreak(text[place])) {
      place += 1; // an empty line, or the second half of CR LF
      continue;
    }
    const row = [];
    for (;;) {
      const cell = text[place] === '"' ? quotedCell(text, place) : plainCell(text, place, separator);
      row.push(cell.value);
      place = cell.end;
      if (text[place] !== separator) break;
      place += 1;
    }
    if (place < text.length && !isBreak(text[place])) {
      throw new Error(`row ${rows.length + 1} must have nothing behind a closing quote`);
    }
    rows.push(row);
  }
  return rows;
}

const isBreak = (character) => character === "\n" || character === "\r";

function quotedCell(text, start) {
  let value = "";
  let from = start + 1;
  for (;;) {
    const quote = text.indexOf('"', from);
    if (quote < 0) throw new Error("every opened quote must be closed; the last one is not");
    value += text.slice(from, quote);
    if (text[quote + 1] !== '"') return { value, end: quote + 1 };
    value += '"';
    from = quote + 2;
  }
}

function plainCell(text, start, separator) {
  let end = start;
  while (end < text.length && text[end] !== separator && !isBreak(text[end])) end += 1;
  return { value: text.slice(start, end), end };
}

/** Return rows with a single quote before texts that begin like a formula; numbers stay. */
export function withoutFormulas(rows) {
  const formula = /^[=+\-@\t\r\n]/;
  const number = /^[+-]?[0-9]+([.,][0-9]+)*([eE][+-]?[0-9]+)?$/;
  const cell = (value) => (formula.test(value) && !number.test(value) ? `'${value}` : value);
  return rows.map((row) => row.map(cell));
}

/** Return CSV; a cell is quoted where it must be. */
export function formatCsv(rows, separator) {
  const risky = new RegExp(`["\\r\\n${separator}]|^\\s|\\s$`);
  const cell = (value) => (risky.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  // A row of one empty cell would be an empty line, which is not read as a row.
  const line = (row) => (row.length === 1 && row[0] === "" ? '""' : row.map(cell).join(separator));
  return rows.map((row) => `${line(row)}\r\n`).join("");
}
