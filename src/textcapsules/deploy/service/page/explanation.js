// An explanation of the service in one form, whichever version has sent it, and the words
// for what its numbers mean.

/** The name under which the background, the category of no label, is asked for. */
export const BACKGROUND = "(background)";

const METHODS = {
  contributions: "what each word adds to a label's score",
  couplings: "how strongly phrases are connected to a label inside the network, the paper's view",
  gradient: "how much a label's score reacts to each word",
  sampled: "what each word adds to a label's score, checked on copies of the text with words left out",
  integrated: "how much a label's score reacts to each word, from an empty text to the whole one",
  erasure: "how a label's score falls when words are left out",
};

// A sentence carries a label whose score falls by so much without it, and by so large a
// share of the label's largest fall.
const MIN_FALL = 0.05;
const MIN_SHARE = 0.3;
const NOTHING = { phrases: [], against: [], change: undefined };

export class Reasons {
  constructor(explanation) {
    const { background = explanation.orphan ?? null } = explanation;
    this.method = explanation.method;
    this.tokens = explanation.tokens;
    this.labels = explanation.labels;
    this.background = background;
    this.backgroundShare = explanation.background_share ?? explanation.orphan_share ?? null;
    this.unclaimed = explanation.unclaimed ?? explanation.leak ?? null;
    this.sentences = carrying(explanation.sentences ?? []);
    this.areFalls = "background" in explanation; // earlier services sent a method's own strengths
  }

  /** Return { phrases, against, change } of a label or of the background, strongest first. */
  of(name) {
    const found = name === BACKGROUND ? this.background : this.labels[name];
    const { phrases, against = [], change } = found ?? NOTHING;
    return {
      phrases: phrases.filter(({ strength }) => strength > 0),
      against: [...against, ...phrases].filter(({ strength }) => strength < 0),
      change,
    };
  }

  /** Write a strength as a number with its unit's sign. */
  format(strength) {
    const size = Math.abs(strength);
    const digits = size >= 0.005 ? size.toFixed(2) : "<0.01";
    if (!this.areFalls) return digits;
    return `${strength > 0 ? "−" : "+"}${digits}`;
  }

  /** Say in a sentence what a strength of a label means. */
  describe(strength, name) {
    const size = Math.abs(strength) >= 0.005 ? Math.abs(strength).toFixed(2) : "less than 0.01";
    const label = name === BACKGROUND ? "the background" : name;
    if (!this.areFalls) return `connected to ${label} with a strength of ${size}`;
    const verb = strength > 0 ? "falls" : "rises";
    return `the score of ${label} ${verb} by ${size} without this phrase`;
  }

  get legend() {
    return this.areFalls
      ? "−0.31: the score falls by 0.31 without this phrase. │: threshold"
      : "0.31: how strongly phrase and label are connected, from 0 to 1. │: threshold";
  }

  /** Return the sentences' numbers, from 1, that carry a label. */
  sentencesOf(name) {
    return this.sentences.flatMap(({ labels }, n) => (labels.includes(name) ? [n + 1] : []));
  }
}

/** Return sentences, each with the names of the labels that it carries. */
function carrying(sentences) {
  const most = {};
  for (const { labels } of sentences) {
    for (const { label, strength } of labels) most[label] = Math.max(most[label] ?? 0, strength);
  }
  const isCarried = ({ label, strength }) => strength >= MIN_FALL && strength >= MIN_SHARE * most[label];
  return sentences.map(({ start, end, labels }) => ({
    start,
    end,
    labels: labels.filter(isCarried).map(({ label }) => label),
  }));
}

export const methodText = (method) => METHODS[method] ?? "a method of this service";

/** Say in one line where in a text of several sentences a label comes from. */
export function summary(reasons, name) {
  const numbers = reasons.sentencesOf(name);
  const all = reasons.sentences.length;
  if (all < 2 || !numbers.length) return "";
  if (numbers.length === all) return "In every sentence.";
  const listed = numbers.length > 4 ? `${numbers.length} of ${all} sentences` : inWords(numbers);
  return `In ${numbers.length > 4 ? "" : numbers.length > 1 ? "sentences " : "sentence "}${listed}.`;
}

function inWords(items) {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

export { inWords };
