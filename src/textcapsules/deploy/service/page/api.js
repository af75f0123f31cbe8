// Calls to the service this page came from.

const TOKEN = "textcapsules-token";

/** A refusal of the service: its status and its message. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

/** Fetch JSON; while the service's queue is full, wait as long as it asks. */
async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  for (;;) {
    const reply = await fetch(path, { ...options, headers });
    if (reply.status === 429) {
      await pause(Number(reply.headers.get("Retry-After")) || 1, options.signal);
      continue;
    }
    const value = await reply.json().catch(() => ({}));
    if (reply.ok) return value;
    throw new Refusal(reply.status, value.error?.message ?? reply.statusText);
  }
}

export const get = (path) => call(path);
export const post = (path, value) => call(path, { method: "POST", body: JSON.stringify(value) });

export const models = () => get("v1/models");

/** Predict texts; returns one prediction per text. */
export async function predict(request, signal) {
  const body = JSON.stringify(request);
  const reply = await call("v1/predict", { method: "POST", body, signal });
  return reply.predictions;
}
