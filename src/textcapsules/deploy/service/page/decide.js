// From scores to labels, exactly as the service decides, so that the slider needs no
// request. The service compares in single precision; so does `Math.fround`.

/** Return how labels are decided: { single, limits }, one limit per label. */
export function ruleOf(model, threshold) {
  return {
    single: threshold === null && model.task === "single-label",
    limits: Float32Array.from(model.labels, (label) => threshold ?? label.threshold),
  };
}

/** Return the places of the labels given, strongest first; `scores` begin at `offset`. */
export function decideRow({ single, limits }, scores, offset = 0) {
  let best = 0;
  for (let place = 1; place < limits.length; place += 1) {
    if (scores[offset + place] > scores[offset + best]) best = place;
  }
  if (scores[offset + best] <= 0) return []; // the model knows no word
  if (single) return [best];
  const given = [];
  for (let place = 0; place < limits.length; place += 1) {
    if (scores[offset + place] >= limits[place]) given.push(place);
  }
  return given.sort((a, b) => scores[offset + b] - scores[offset + a]);
}

/** Return the names of the labels given; a null threshold means as calibrated. */
export function decide(model, scores, threshold) {
  const row = model.labels.map(({ name }) => scores[name]);
  return decideRow(ruleOf(model, threshold), row).map((place) => model.labels[place].name);
}

/** Return the labels' names by score; equal scores keep the model's order. */
export function rank(model, scores) {
  return model.labels.map(({ name }) => name).sort((a, b) => scores[b] - scores[a]);
}

/** Return the score from which a label is given. */
export function thresholdOf(model, name, threshold) {
  return threshold ?? model.labels.find((label) => label.name === name).threshold;
}

/** Return the lowest and the highest calibrated threshold. */
export function calibratedRange(model) {
  const all = model.labels.map((label) => label.threshold);
  return [Math.min(...all), Math.max(...all)];
}

/** Say in a sentence how labels are given. */
export function ruleText(model, threshold) {
  if (threshold !== null) return `Every label with a score of at least ${threshold.toFixed(2)}.`;
  if (model.task === "single-label") return "Only the highest label, as the model was trained.";
  const [low, high] = calibratedRange(model).map((value) => value.toFixed(2));
  const range = low === high ? low : `${low} to ${high}, one for each label`;
  return `Every label past its calibrated threshold, ${range}.`;
}
