// The right side of a text: the labels given with their reasons, and why not another.

import { rank, thresholdOf } from "./decide.js";
import { counted, make, percent, setProperties } from "./dom.js";
import { BACKGROUND, methodText, summary } from "./explanation.js";
import { placeOf, setStyle, sign } from "./labels.js";

const MOST_PHRASES = 5;
const MIN_AGAINST = 0.05; // what speaks less against a label that was given is not shown
const SHORT_LIST = 5; // of the labels not given

/** Return the elements of the labels given. */
export function givenLabels(work) {
  return work.given.map((name) => {
    const { reasons, prediction } = work;
    const item = labelItem(work, name, "given");
    const bar = scoreBar(work, name);
    const pick = make(
      "button",
      { type: "button", class: "pick", "aria-pressed": String(work.selected === name), "data-key": `label ${name}` },
      sign(work.model, placeOf(work.model, name)),
      make("span", { class: "name" }, name),
      bar,
      make("span", { class: "value" }, prediction.scores[name].toFixed(2)),
    );
    pick.title = work.selected === name ? "Show the phrases of all labels" : `Show only the phrases of ${name}`;
    pick.addEventListener("click", () => work.select(name));
    item.append(make("h3", {}, pick));
    if (!reasons) return item;
    const { phrases, against } = reasons.of(name);
    item.append(phraseList(work, name, phrases, "No single phrase stands out."));
    const notable = against.filter(({ strength }) => strength <= -MIN_AGAINST).slice(0, 2);
    if (notable.length) item.append(make("h4", {}, "Against it"), phraseList(work, name, notable));
    const line = summary(reasons, name);
    if (line || work.model.methods) item.append(footPart(work, name, line));
    return item;
  });
}

/** Return the elements of the labels not given, each with a button that says why. */
export function otherLabels(work) {
  const others = rank(work.model, work.prediction.scores).filter((name) => !work.given.includes(name));
  const isShort = !work.long && others.length > SHORT_LIST + 1;
  const shown = others.filter((name, n) => !isShort || n < SHORT_LIST || name === work.selected);
  const items = shown.map((name) => {
    const item = labelItem(work, name, "other");
    const isOpen = work.selected === name;
    const button = make(
      "button",
      { type: "button", class: "pick", "aria-expanded": String(isOpen), "data-key": `label ${name}` },
      sign(work.model, placeOf(work.model, name)),
      make("span", { class: "name" }, name),
      scoreBar(work, name),
      make("span", { class: "value" }, work.prediction.scores[name].toFixed(2)),
    );
    button.title = `Why not ${name}?`;
    button.addEventListener("click", () => work.select(name));
    item.append(button);
    if (isOpen) item.append(whyNot(work, name));
    return item;
  });
  const more = others.length > SHORT_LIST + 1 ? [moreButton(work, others.length, isShort)] : [];
  return { items, more };
}

function moreButton(work, n, isShort) {
  const text = isShort ? `Show all ${counted(n, "label", "labels")}` : "Show fewer labels";
  const button = make("button", { type: "button", class: "small", "aria-expanded": String(!isShort), "data-key": "more" }, text);
  button.addEventListener("click", () => work.lengthen());
  return button;
}

function labelItem(work, name, kind) {
  return setStyle(make("li", { class: `label ${kind}`, "data-name": name }), placeOf(work.model, name));
}

function scoreBar(work, name) {
  return setProperties(make("span", { class: "bar", "aria-hidden": "true" }, make("i")), {
    score: work.prediction.scores[name].toFixed(4),
    threshold: work.isSingle ? 2 : thresholdOf(work.model, name, work.settings.threshold),
  });
}

/** Say why a label was not given: its score, how much is missing, what spoke for and against. */
function whyNot(work, name) {
  const part = make("div", { class: "why" }, make("p", {}, distanceText(work, name)));
  if (!work.reasons) return part;
  const { phrases, against } = work.reasons.of(name);
  part.append(make("h4", {}, "For it"), phraseList(work, name, phrases, "No phrase speaks for it."));
  if (against.length) part.append(make("h4", {}, "Against it"), phraseList(work, name, against));
  return part;
}

function distanceText(work, name) {
  const score = work.prediction.scores[name];
  if (work.prediction.outside) return `Its score is ${score.toFixed(2)}, but the text is outside the model's topics.`;
  if (work.isSingle) {
    const [best] = work.given;
    return `Its score is ${score.toFixed(2)}, ${(work.prediction.scores[best] - score).toFixed(2)} below that of ${best}, the highest.`;
  }
  const threshold = thresholdOf(work.model, name, work.settings.threshold);
  return `Its score is ${score.toFixed(2)}, ${(threshold - score).toFixed(2)} below the threshold of ${threshold.toFixed(2)}.`;
}

function phraseList(work, name, phrases, without = "") {
  if (!phrases.length) return make("p", { class: "hint" }, without);
  const strongest = Math.max(...phrases.map(({ strength }) => Math.abs(strength)));
  const items = phrases.slice(0, MOST_PHRASES).map((phrase) => {
    const { text, strength } = phrase;
    const button = make(
      "button",
      { type: "button", class: strength < 0 ? "phrase against" : "phrase" },
      make("bdi", {}, text),
      make("span", { class: "heard" }, `: ${work.reasons.describe(strength, name)}`),
      setProperties(make("span", { class: "force", "aria-hidden": "true" }, make("i")), {
        share: (Math.abs(strength) / strongest).toFixed(3),
      }),
      make("span", { class: "value", "aria-hidden": "true" }, work.reasons.format(strength)),
    );
    for (const event of ["pointerenter", "focus"]) {
      button.addEventListener(event, () => work.light({ ...phrase, name }, event === "focus"));
    }
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => work.light(null));
    button.addEventListener("click", () => work.goTo(phrase));
    return make("li", {}, button);
  });
  return make("ul", { class: "phrases" }, ...items);
}

/** Return where a label comes from, the button that asks what would take it away, and the answer. */
function footPart(work, name, line) {
  const part = make("div", { class: "change" }, make("span", { class: "hint" }, line));
  if (!work.model.methods) return part;
  const isShown = work.changing === name;
  const button = make("button", { type: "button", class: "small", "aria-pressed": String(isShown), "data-key": `change ${name}` }, "What would change this?");
  button.addEventListener("click", () => work.askChange(name));
  part.append(button);
  if (isShown) part.append(make("p", { role: "status" }, ...changeText(work, name)));
  return part;
}

function changeText(work, name) {
  const change = work.changes?.[name]?.change;
  if (change === undefined) return ["Looking…"];
  if (change === null) return ["No short deletion takes this label away."];
  const struck = change.deleted.flatMap(({ text }, n) => [n ? ", " : "", make("del", {}, text)]);
  return ["Without ", ...struck, ` the score is ${change.score.toFixed(2)}, and ${name} is no longer given.`];
}

/** Return what stands below the labels: how much is background, how reasons were found. */
export function aboutPart(work) {
  const { reasons, prediction, model } = work;
  const parts = [];
  const all = model.reads === "characters" ? ["character", "characters"] : ["word", "words"];
  const known = `${prediction.known.toLocaleString("en")} of ${counted(prediction.words, ...all)} known`;
  parts.push(make("p", { class: "known" }, known));
  if (reasons && reasons.unclaimed !== null) parts.push(...sharesPart(work));
  if (reasons) parts.push(methodPart(work));
  return parts;
}

function sharesPart(work) {
  const { reasons } = work;
  const shares = [Math.max(0, 1 - reasons.backgroundShare - reasons.unclaimed), reasons.backgroundShare, reasons.unclaimed];
  const names = ["of the text speaks for labels", "is background", "of the text nobody claimed"];
  const stack = make("span", { class: "stack", "aria-hidden": "true" }, ...shares.map((share) => setProperties(make("i"), { share })));
  const legend = names.map((name, n) => make("span", { class: `share-${n}` }, `${percent(shares[n])} ${name}`));
  const parts = [stack, make("p", { class: "legend" }, ...legend)];
  if (reasons.background?.phrases.length) {
    const isShown = work.selected === BACKGROUND;
    const button = make("button", { type: "button", class: "small background", "aria-pressed": String(isShown), "data-key": "background" }, "Show the background");
    button.addEventListener("click", () => work.select(BACKGROUND));
    parts.push(button);
  }
  return parts;
}

function methodPart(work) {
  const { method } = work.reasons;
  const line = make("p", { class: "method" }, "How these reasons were found: ", make("b", {}, method), `, ${methodText(method)}. `);
  const [usual] = work.model.methods ?? [];
  const other = method === "couplings" ? (work.model.method ?? usual) : "couplings";
  if (other !== method && work.model.methods?.includes(other)) {
    const text = other === "couplings" ? "Show the paper's view" : `Back to ${other}`;
    const button = make("button", { type: "button", class: "link", "data-key": "method" }, text);
    button.addEventListener("click", () => work.useMethod(other));
    line.append(button);
  }
  return line;
}
