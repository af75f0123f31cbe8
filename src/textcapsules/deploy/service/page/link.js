// The state of the page as the part of a link after #, which no browser sends anywhere.

/** Return the fragment for a state: { model, threshold, texts }. */
export function toFragment({ model, threshold, texts }) {
  const values = new URLSearchParams();
  values.append("model", model);
  if (threshold !== null) values.append("threshold", threshold.toFixed(2));
  for (const { text, label } of texts) {
    values.append("text", text);
    values.append("label", label);
  }
  return values.toString();
}

/** Return the state in a fragment, or null if it holds none. */
export function fromFragment(fragment) {
  const values = new URLSearchParams(fragment.replace(/^#/, ""));
  const texts = values.getAll("text");
  if (!texts.length) return null;
  const labels = values.getAll("label");
  const threshold = values.has("threshold") ? Number(values.get("threshold")) : null;
  return {
    model: values.get("model"),
    threshold: threshold !== null && threshold >= 0 && threshold <= 1 ? threshold : null,
    texts: texts.map((text, place) => ({ text, label: labels[place] ?? "" })),
  };
}
