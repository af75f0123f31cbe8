// The page: texts side by side, one threshold for all, a link that restores everything.

import * as api from "./api.js";
import { keepToken, models } from "./api.js";
import { Card } from "./card.js";
import { calibratedRange, ruleText } from "./decide.js";
import { byId, make } from "./dom.js";
import { examplesFor } from "./examples.js";
import { fromFragment, toFragment } from "./link.js";
import { Table } from "./table.js";

const MAX_TEXTS = 8;

// Shared with the cards and the table. A null threshold means as calibrated.
const settings = { model: null, threshold: null, limits: null };
let served = [];
let cards = [];
let table = null;

async function start() {
  try {
    const reply = await models();
    served = reply.models;
    settings.limits = reply.limits;
    settings.review = reply.review;
  } catch (error) {
    refused(error);
    return;
  }
  byId("token-form").hidden = true;
  byId("fault").hidden = true;
  byId("model").replaceChildren(...served.map(({ name }) => make("option", { value: name }, name)));
  byId("model-field").hidden = served.length < 2;
  table ??= new Table(settings);
  restore();
  if (settings.review && byId("review").hidden) {
    byId("review").hidden = false;
    const { mount } = await import("./review.js");
    await mount(byId("review"), { api, settings });
  }
}

/** Show a refusal above all texts; ask for the token if it is missing. */
function refused(error) {
  if (error.status === 401) {
    byId("token-form").hidden = false;
    byId("token").focus();
    return;
  }
  byId("fault").textContent = `The service does not answer as expected: ${error.message}`;
  byId("fault").hidden = false;
}

/** Restore the state that the link holds, or start with an example. */
function restore() {
  const state = fromFragment(location.hash);
  settings.model = served.find(({ name }) => name === state?.model) ?? served[0];
  settings.threshold = state?.threshold ?? null;
  byId("model").value = settings.model.name;
  const [group] = examples();
  const fresh = [{ text: group.suits ? group.texts[0] : "", label: "" }];
  cards = [];
  byId("texts").replaceChildren();
  for (const text of state?.texts.slice(0, MAX_TEXTS) ?? fresh) addCard(text);
  showThreshold();
}

const examples = () => examplesFor(settings.model.labels.map(({ name }) => name));

function addCard(text = { text: "", label: "" }) {
  const card = new Card(settings, { remove: removeCard, refused }, text);
  cards.push(card);
  card.offer(examples());
  byId("texts").append(card.element);
  numberCards();
  card.fit();
  card.ask();
  return card;
}

function removeCard(card) {
  const place = cards.indexOf(card);
  card.question?.abort();
  card.element.remove();
  cards.splice(place, 1);
  numberCards();
  cards[Math.min(place, cards.length - 1)].area.focus();
}

function numberCards() {
  cards.forEach((card, place) => card.number(place + 1, { alone: cards.length === 1 }));
  byId("texts").dataset.cards = String(Math.min(cards.length, 2));
  byId("add").disabled = cards.length >= MAX_TEXTS;
}

function showThreshold() {
  const { model, threshold } = settings;
  const shown = threshold ?? calibratedRange(model)[0];
  byId("threshold").value = String(shown);
  byId("threshold-value").textContent = shown.toFixed(2);
  byId("calibrated").disabled = threshold === null;
  byId("rule").textContent = ruleText(model, threshold);
}

function setThreshold(value) {
  settings.threshold = value;
  showThreshold();
  for (const card of cards) card.render();
  table.render();
}

function setModel(name) {
  settings.model = served.find((model) => model.name === name);
  settings.threshold = null;
  showThreshold();
  table.forget();
  for (const card of cards) {
    card.reset();
    card.offer(examples());
    card.ask();
  }
}

async function copyLink() {
  const texts = cards.map((card) => ({ text: card.text, label: card.selected }));
  const fragment = toFragment({ model: settings.model.name, threshold: settings.threshold, texts });
  history.replaceState(null, "", `#${fragment}`);
  try {
    await navigator.clipboard.writeText(location.href);
    byId("copied").textContent = "Copied. The texts are in the link itself.";
    byId("link-field").hidden = true;
  } catch {
    byId("copied").textContent = "The link is below and in the address bar; the texts are in it.";
    byId("link").value = location.href;
    byId("link-field").hidden = false;
    byId("link").select();
  }
}

byId("threshold").addEventListener("input", (event) => setThreshold(Number(event.target.value)));
byId("calibrated").addEventListener("click", () => setThreshold(null));
byId("model").addEventListener("change", (event) => setModel(event.target.value));
byId("add").addEventListener("click", () => addCard().area.focus());
byId("copy").addEventListener("click", copyLink);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  start();
});
window.addEventListener("hashchange", () => {
  if (fromFragment(location.hash)) restore(); // any other fragment is a place on the page
});
start();
