// The text with what spoke for its labels. A layer is what spoke for one label:
// { name, place, colour, tokens, phrases, scale }, `place` being the label's in the model.

import { make, paint } from "./dom.js";

const COLOURS = 7; // of the style sheet
const LINES = ["solid", "dashed", "dotted"];
const FAINT = 0.12; // below it a token is not marked
const SECOND = 0.4; // from it on, a second label is shown under the first

/** Set the colour and the line of a label; the orphan, with no place, is grey. */
export function dress(element, place, colour = place % COLOURS) {
  return paint(element, {
    colour: place < 0 ? "var(--soft)" : `var(--label-${colour})`,
    line: place < 0 ? "dotted" : LINES[Math.floor(place / COLOURS) % LINES.length],
  });
}

/** Give each of some labels, by place, a colour: its own unless an earlier one has it. */
export function ownColours(places) {
  const colours = new Map();
  for (const place of places) {
    let colour = place % COLOURS;
    const taken = new Set(colours.values());
    while (taken.has(colour) && taken.size < COLOURS) colour = (colour + 1) % COLOURS;
    colours.set(place, colour);
  }
  return colours;
}

/** Return the nodes of the text, with the layers' tokens marked. */
export function markedText(text, tokens, layers, { cut }) {
  const points = Array.from(text); // offsets count code points, as Python does
  const slice = (start, end) => points.slice(start, end).join("");
  const nodes = [];
  let place = 0;
  let before = null;
  tokens.forEach(({ start, end }, number) => {
    const spoken = strongest(layers, number);
    const joined = before && spoken && before.layer === spoken.layer;
    const gap = slice(place, start);
    if (gap) nodes.push(joined ? mark(gap, weaker(before, spoken)) : gap);
    const word = slice(start, end);
    nodes.push(spoken ? mark(word, spoken) : word);
    place = Math.max(place, end);
    before = spoken;
  });
  const rest = slice(place);
  if (rest) nodes.push(cut ? make("span", { class: "unread", title: "Not read: the text is longer than the model's limit." }, rest) : rest);
  return nodes;
}

const weaker = (a, b) => (a.strength < b.strength ? a : b);

function strongest(layers, number) {
  const ranked = layers
    .map((layer) => ({ layer, strength: (layer.tokens[number] ?? 0) / layer.scale }))
    .filter(({ strength }) => strength >= FAINT)
    .sort((a, b) => b.strength - a.strength);
  if (!ranked.length) return null;
  const second = ranked[1]?.strength >= SECOND ? ranked[1].layer : null;
  return { ...ranked[0], second };
}

function mark(text, { layer, strength, second }) {
  const names = [layer.name, second?.name].filter(Boolean).join(" and ");
  const element = dress(make("mark", { title: names }, text), layer.place, layer.colour);
  paint(element, { strength: Math.min(1, strength).toFixed(2) });
  if (second) paint(element, { second: `var(--label-${second.colour})` });
  return element;
}

/** Return list items: a layer's name and its strongest phrases. */
export function phraseItems(layers, most) {
  return layers.map((layer) => {
    const phrases = layer.phrases.filter(({ strength }) => strength > 0).slice(0, most);
    const strongestPhrase = phrases[0]?.strength ?? 1;
    const shown = phrases.map(({ text, strength }) =>
      paint(
        make("span", { class: "phrase" }, make("bdi", {}, text), make("small", {}, ` ${strength.toPrecision(2)}`)),
        { strength: (strength / strongestPhrase).toFixed(2) },
      ),
    );
    const name = make("b", { class: "name" }, layer.name);
    return dress(make("li", {}, name, ...(shown.length ? shown : ["no phrase"])), layer.place, layer.colour);
  });
}
