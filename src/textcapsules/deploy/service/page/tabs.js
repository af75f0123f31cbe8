// Tabs as in the ARIA Authoring Practices: arrows move, Home and End jump.

import { byId } from "./dom.js";

const all = () => [...document.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);

/** Open a tab: "text", "file" or "review". */
export function openTab(name, { focus = false } = {}) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const isOpen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isOpen));
    tab.tabIndex = isOpen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !isOpen;
    if (isOpen && focus) tab.focus();
  }
  document.body.dataset.tab = name;
  byId(`tab-${name}`).dispatchEvent(new CustomEvent("open"));
}

const nameOf = (tab) => tab.id.replace("tab-", "");

for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => openTab(nameOf(tab)));
  tab.addEventListener("keydown", (event) => {
    const tabs = all();
    const place = tabs.indexOf(tab);
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    openTab(nameOf(tabs[(to + tabs.length) % tabs.length]), { focus: true });
  });
}
