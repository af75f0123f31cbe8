// The text with its phrases highlighted. A layer holds the strengths of one label:
// { name, place, colour, tokens, phrases, scale }; `place` is the label's in the model.

import { make, setProperties } from "./dom.js";

const COLOURS = 7; // of the style sheet
const LINES = ["solid", "dashed", "dotted"];
const MIN_STRENGTH = 0.12; // weaker tokens are not marked
const MIN_SECOND = 0.4; // from here on, a second label is shown under the first

/** Set the colour and the line of a label; the orphan, with no place, is grey. */
export function setStyle(element, place, colour = place % COLOURS) {
  return setProperties(element, {
    colour: place < 0 ? "var(--soft)" : `var(--label-${colour})`,
    line: place < 0 ? "dotted" : LINES[Math.floor(place / COLOURS) % LINES.length],
  });
}

/** Give each of some labels, by place, a colour: its usual one unless an earlier label has it. */
export function pickColours(places) {
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
    .filter(({ strength }) => strength >= MIN_STRENGTH)
    .sort((a, b) => b.strength - a.strength);
  if (!ranked.length) return null;
  const second = ranked[1]?.strength >= MIN_SECOND ? ranked[1].layer : null;
  return { ...ranked[0], second };
}

function mark(text, { layer, strength, second }) {
  const names = [layer.name, second?.name].filter(Boolean).join(" and ");
  const element = setStyle(make("mark", { title: names }, text), layer.place, layer.colour);
  setProperties(element, { strength: Math.min(1, strength).toFixed(2) });
  if (second) setProperties(element, { second: `var(--label-${second.colour})` });
  return element;
}

/** Return list items: a layer's name and its strongest phrases. */
export function phraseItems(layers, most) {
  return layers.map((layer) => {
    const phrases = layer.phrases.filter(({ strength }) => strength > 0).slice(0, most);
    const strongestPhrase = phrases[0]?.strength ?? 1;
    const shown = phrases.map(({ text, strength }) =>
      setProperties(
        make("span", { class: "phrase" }, make("bdi", {}, text), make("small", {}, ` ${strength.toPrecision(2)}`)),
        { strength: (strength / strongestPhrase).toFixed(2) },
      ),
    );
    const name = make("b", { class: "name" }, layer.name);
    return setStyle(make("li", {}, name, ...(shown.length ? shown : ["no phrase"])), layer.place, layer.colour);
  });
}
