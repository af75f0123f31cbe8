// The text with the phrases of all labels marked at once. It lies under the text area
// letter by letter, so that marks must not change the width of anything.

import { make, setProperties } from "./dom.js";
import { setStyle } from "./labels.js";

const MIN_SHARE = 0.1; // phrases weaker than that, against their label's strongest, are not marked
const MAX_LANES = 4;

/**
 * Return the nodes of a text.
 *
 * layers: [{ name, place, tag, phrases }]; deleted: stretches to strike through; unread:
 * where the model stops reading, in code points as all offsets.
 */
export function markedText(text, layers, { deleted = [], unread = Infinity } = {}) {
  const points = Array.from(text); // offsets count code points, as Python does
  const strongest = Math.max(1e-9, ...layers.flatMap(({ phrases }) => phrases.map((p) => p.strength)));
  const claims = layers.flatMap((layer) => {
    const most = Math.max(...layer.phrases.map(({ strength }) => strength));
    return layer.phrases
      .filter(({ strength }) => strength >= MIN_SHARE * most)
      .map((phrase) => ({ ...phrase, layer, share: phrase.strength / strongest }));
  });
  const ends = [...claims, ...deleted].flatMap(({ start, end }) => [start, end]);
  const cuts = [...new Set([0, unread, points.length, ...ends])]
    .map((cut) => Math.min(cut, points.length))
    .sort((a, b) => a - b)
    .filter((cut, n, all) => cut !== all[n - 1]);
  const nodes = cuts.slice(0, -1).map((start, n) => {
    const end = cuts[n + 1];
    const covers = (stretch) => stretch.start <= start && end <= stretch.end;
    let node = points.slice(start, end).join("");
    if (deleted.some(covers)) node = make("del", {}, node);
    if (start >= unread) return make("span", { class: "unread" }, node);
    return wrap(node, claims.filter(covers), start, end);
  });
  return [...nodes, make("br")]; // a last line break needs something behind it
}

/** Put a mark per label around a stretch, the strongest innermost; tags where phrases begin. */
function wrap(node, claims, start, end) {
  const byLabel = new Map();
  for (const claim of claims) {
    const known = byLabel.get(claim.layer);
    if (!known || known.share < claim.share) byLabel.set(claim.layer, claim);
  }
  const ranked = [...byLabel.values()].sort((a, b) => b.share - a.share);
  const begins = ranked.filter((claim) => claim.start === start);
  const tags = begins.map(({ layer }) => setStyle(make("b", { "data-tag": layer.tag }), layer.place));
  let content = tags.length ? [make("i", { class: "tags" }, ...tags), node] : [node];
  ranked.slice(0, MAX_LANES).forEach((claim, lane) => {
    const mark = make("mark", { "data-start": start, "data-end": end }, ...content);
    setProperties(setStyle(mark, claim.layer.place), { strength: Math.min(1, claim.share).toFixed(2), lane });
    mark.claim = claim;
    content = [mark];
  });
  return content[0];
}

/** Return the phrases that lie under a mark: [{ name, place, text, start, end, strength }]. */
export function claimsAt(element) {
  let mark = element?.closest("mark");
  while (mark?.querySelector("mark")) mark = mark.querySelector("mark");
  const found = [];
  for (; mark?.claim; mark = mark.parentElement) {
    const { layer, ...phrase } = mark.claim;
    found.push({ ...phrase, name: layer.name, place: layer.place });
  }
  return found.sort((a, b) => b.strength - a.strength);
}

/** Return phrases of an earlier text at their places in a changed one; changed phrases are dropped. */
export function moved(phrases, before, after) {
  const old = Array.from(before);
  const now = Array.from(after);
  const most = Math.min(old.length, now.length);
  let head = 0;
  while (head < most && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < most - head && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  const shift = now.length - old.length;
  return phrases.flatMap((phrase) => {
    if (phrase.end <= head) return [phrase];
    if (phrase.start < old.length - tail) return [];
    return [{ ...phrase, start: phrase.start + shift, end: phrase.end + shift }];
  });
}
