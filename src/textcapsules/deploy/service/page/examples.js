// Texts to try, written for this page. If the model has some of a group's labels, the
// group is offered first, and its first text is shown at the start.

const GROUPS = [
  {
    title: "Support tickets",
    labels: ["billing", "crash", "login", "shipping", "sync", "returns"],
    texts: [
      "Hi team, I was charged twice for my subscription this month. Also, since the last update the app crashes as soon as I open the settings. Please have a look.",
      "The parcel still has not arrived and the tracking page has not changed for a week. While I wait: could you add a dark mode?",
      "I cannot log in, the reset link never reaches my inbox. If this takes much longer, please cancel my subscription.",
      "My notes are not syncing between phone and laptop, and everything has become very slow.",
    ],
  },
  {
    title: "News",
    labels: ["earn", "acq", "money-fx", "interest", "grain", "crude", "trade", "ship", "sports", "business", "world"],
    texts: [
      "The brewery said quarterly profit rose by a tenth as it agreed to buy a smaller rival for 40 million dollars in shares.",
      "The central bank left interest rates unchanged, and the currency fell against the dollar after figures for exports of wheat.",
    ],
  },
  {
    title: "Reviews",
    labels: ["positive", "negative", "pos", "neg", "subjective", "objective"],
    texts: [
      "The first hour is a delight, warm and quick on its feet; then the plot runs out of breath and the ending feels glued on.",
      "A stubborn old gardener, a broken radio and one long summer: small film, big heart.",
    ],
  },
  {
    title: "Questions",
    labels: ["abbr", "desc", "enty", "hum", "loc", "num"],
    texts: ["How many bridges cross the river in the old town?", "Who painted the ceiling of the station hall?"],
  },
];

/** Return the groups, those that suit a model's labels first, each with `suits`. */
export function examplesFor(names) {
  const known = new Set(names.map((name) => name.toLowerCase()));
  const groups = GROUPS.map((group) => ({
    ...group,
    suits: group.labels.filter((label) => known.has(label)).length > 1,
  }));
  return groups.sort((a, b) => b.suits - a.suits);
}
