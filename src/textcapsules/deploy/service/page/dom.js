// Small helpers for the document. Content always goes in as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** Make an element with attributes and children; strings become text nodes. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Set custom properties; the policy of the page forbids style attributes. */
export function setProperties(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    element.style.setProperty(`--${name}`, String(value));
  }
  return element;
}

/** Call `action` when it has not been asked for again for a while. */
export function debounced(action, milliseconds) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}

export const percent = (share) => `${Math.round(100 * share)} %`;
export const counted = (n, one, many) =>
  `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
