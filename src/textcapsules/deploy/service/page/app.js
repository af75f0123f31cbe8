// The page: its tabs, one threshold for all texts, a link that restores everything.

import * as api from "./api.js";
import { calibratedRange, ruleText } from "./decide.js";
import { byId, make } from "./dom.js";
import { examplesFor } from "./examples.js";
import { fromFragment, toFragment } from "./link.js";
import { Table } from "./table.js";
import { openTab } from "./tabs.js";
import { Work } from "./work.js";

const MAX_TEXTS = 8;
const RETRY = 2000; // milliseconds between looks whether the service is back

// Shared by all parts. A null threshold means as calibrated, a null method the model's own.
const settings = { model: null, threshold: null, method: null, limits: null };
let served = [];
let works = [];
let table = null;
let retry = null;

/** Show a fault of the whole service above everything, until a call is answered again. */
api.watch((error) => {
  const isWhole = error !== null && (error.status === 0 || error.status >= 500);
  byId("fault").hidden = !isWhole;
  if (isWhole) byId("fault").textContent = error.message;
  if (error?.status === 401) askToken();
  if (error?.status === 0) retry ??= setTimeout(lookAgain, RETRY);
});

function askToken() {
  byId("token-form").hidden = false;
  byId("token").focus();
}

/** See whether the service is back; then ask again what was not answered. */
async function lookAgain() {
  retry = null;
  try {
    await api.get("readyz");
  } catch {
    return; // the watcher tries again
  }
  if (!served.length) start();
  for (const work of works) if (work.fault) work.ask();
}

async function start() {
  try {
    const reply = await api.models();
    served = reply.models;
    settings.limits = reply.limits;
    settings.review = reply.review;
  } catch (error) {
    if (error.status !== 401 && byId("fault").hidden) {
      byId("fault").textContent = `The service does not answer as expected: ${error.message}`;
      byId("fault").hidden = false;
    }
    return;
  }
  byId("token-form").hidden = true;
  byId("content").hidden = false;
  byId("model").replaceChildren(...served.map(({ name }) => make("option", { value: name }, name)));
  byId("model-field").hidden = false;
  byId("model").hidden = served.length < 2;
  table ??= new Table(settings, askAll);
  restore();
  offerReview();
  const first = settings.review && !fromFragment(location.hash) ? "review" : "text";
  openTab(document.body.dataset.tab ?? first);
}

/** Show the review tab if the service has something to review. */
function offerReview() {
  if (!settings.review) return;
  byId("tab-review").hidden = false;
  const mount = async () => {
    const { mount } = await import("./review.js");
    await mount(byId("panel-review"), { api, settings });
    for (const name of ["text", "file"]) byId(`tab-${name}`).addEventListener("open", refresh);
  };
  byId("tab-review").addEventListener("open", mount, { once: true });
}

/** Take over the thresholds that a review may have changed. */
async function refresh() {
  const { models } = await api.models();
  for (const model of served) {
    Object.assign(model, models.find(({ name }) => name === model.name));
  }
  setThreshold(settings.threshold);
}

/** Restore the state that the link holds, or start with an example. */
function restore() {
  const state = fromFragment(location.hash);
  settings.model = served.find(({ name }) => name === state?.model) ?? served[0];
  settings.threshold = state?.threshold ?? null;
  settings.method = null;
  byId("model").value = settings.model.name;
  const [group] = examples();
  const fresh = [{ text: group.suits ? group.texts[0] : "", label: "" }];
  works = [];
  byId("texts").replaceChildren();
  for (const text of state?.texts.slice(0, MAX_TEXTS) ?? fresh) addWork(text);
  showModel();
  showThreshold();
}

const examples = () => examplesFor(settings.model.labels.map(({ name }) => name));

function addWork(text) {
  const work = new Work(settings, { remove: removeWork, methodChanged: askAll }, text);
  works.push(work);
  work.offer(examples());
  byId("texts").append(work.element);
  numberWorks();
  work.ask();
  return work;
}

function removeWork(work) {
  const place = works.indexOf(work);
  work.question?.abort();
  work.element.remove();
  works.splice(place, 1);
  numberWorks();
  works[Math.min(place, works.length - 1)].area.focus();
}

function numberWorks() {
  works.forEach((work, place) => work.number(place + 1, { alone: works.length === 1 }));
  byId("add").disabled = works.length >= MAX_TEXTS;
}

function askAll() {
  for (const work of works) work.ask();
  if (table.row.isOpen) table.row.work.ask();
}

function showModel() {
  byId("model-name").textContent = served.length < 2 ? settings.model.name : "";
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
  for (const work of works) work.decideAnew();
  table.decide();
}

function setModel(name) {
  settings.model = served.find((model) => model.name === name);
  settings.threshold = null;
  settings.method = null;
  showThreshold();
  table.forget();
  for (const work of works) {
    work.reset();
    work.offer(examples());
    work.ask();
  }
}

async function copyLink() {
  const texts = works.map((work) => ({ text: work.text, label: work.selected }));
  const fragment = toFragment({ model: settings.model.name, threshold: settings.threshold, texts });
  history.replaceState(null, "", `#${fragment}`);
  try {
    await navigator.clipboard.writeText(location.href);
    byId("copied").textContent = "Copied. The texts are in the link itself.";
    byId("link-field").hidden = true;
  } catch {
    byId("copied").textContent = "The link is here and in the address bar; the texts are in it.";
    byId("link").value = location.href;
    byId("link-field").hidden = false;
    byId("link").select();
  }
}

byId("threshold").addEventListener("input", (event) => setThreshold(Number(event.target.value)));
byId("calibrated").addEventListener("click", () => setThreshold(null));
byId("model").addEventListener("change", (event) => setModel(event.target.value));
byId("add").addEventListener("click", () => addWork().area.focus());
byId("copy").addEventListener("click", copyLink);
byId("print").addEventListener("click", () => window.print());
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.keepToken(byId("token").value.trim());
  start();
});
window.addEventListener("hashchange", () => {
  if (fromFragment(location.hash)) restore(); // any other fragment is a place on the page
});
start();
