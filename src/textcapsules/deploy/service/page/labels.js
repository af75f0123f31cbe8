// How a label looks: one colour, one line and one tag, the same on every text, in the
// reports and in print (textcapsules.draw.palette).

import { make, setProperties } from "./dom.js";

const COLOURS = 14; // of the style sheet
const SET_SIZE = 7; // colours that all eyes can tell apart
const LINES = ["solid", "dashed", "dotted"];
const tagsOf = new WeakMap(); // of a model's labels

/** Set the colour and the line of the label at `place`; the background, at -1, is grey. */
export function setStyle(element, place) {
  return setProperties(element, {
    colour: place < 0 ? "var(--soft)" : `var(--label-${place % COLOURS})`,
    line: place < 0 ? "dotted" : LINES[Math.floor(place / SET_SIZE) % LINES.length],
  });
}

/** Return one or two letters per label, no two the same. */
export function labelTags(names) {
  const taken = new Set();
  return names.map((name) => {
    const words = (name.toUpperCase().match(/[\p{L}\p{N}]+/gu) ?? []).map((word) => [...word]);
    const letters = words.length ? words.flat() : ["?"];
    const initials = words.length > 1 ? [words[0][0] + words[1][0]] : [];
    const pairs = letters.slice(1).map((letter) => letters[0] + letter);
    const numbered = names.map((_, n) => `${letters[0]}${n + 2}`);
    const options = [...initials, ...(pairs.length ? pairs : letters), ...numbered];
    const tag = options.find((option) => !taken.has(option));
    taken.add(tag);
    return tag;
  });
}

/** Return the tag of a model's label. */
export function tagOf(model, place) {
  if (place < 0) return "··";
  if (!tagsOf.has(model)) tagsOf.set(model, labelTags(model.labels.map(({ name }) => name)));
  return tagsOf.get(model)[place];
}

export const placeOf = (model, name) => model.labels.findIndex((label) => label.name === name);

/** Return the sign of a label: its tag on its colour, above its line. */
export function sign(model, place) {
  const tag = make("span", { class: "tag", "aria-hidden": "true" }, tagOf(model, place));
  return setStyle(tag, place);
}

/** Return a small name with its sign. */
export function chip(model, place, ...more) {
  const name = model.labels[place].name;
  return setStyle(make("span", { class: "chip" }, sign(model, place), name, ...more), place);
}
