// From scores to labels, exactly as the service decides, so that the slider needs no
// request. The service compares in single precision; so does `Math.fround`.

/** Return the labels given, strongest first; a null threshold means as calibrated. */
export function decide(model, scores, threshold) {
  const ranked = rank(model, scores);
  if (scores[ranked[0]] <= 0) return [];
  if (threshold === null && model.task === "single-label") return ranked.slice(0, 1);
  return ranked.filter(
    (name) => scores[name] >= Math.fround(thresholdOf(model, name, threshold)),
  );
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
  if (threshold !== null) return `All labels with a score of at least ${threshold.toFixed(2)}.`;
  if (model.task === "single-label") return "Only the highest label, as the model was trained.";
  const [low, high] = calibratedRange(model).map((value) => value.toFixed(2));
  const range = low === high ? low : `${low} to ${high}, one for each label`;
  return `All labels past their calibrated threshold, ${range}.`;
}
