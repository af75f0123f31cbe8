// Calls to the service this page came from.

const TOKEN = "textcapsules-token";
const listeners = new Set();

/** A refusal of the service: its status and its message. Status 0: there was no answer. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Call `listener(error)` after each call: the refusal, or null if it was answered. */
export function watch(listener) {
  listeners.add(listener);
}

const tell = (error) => listeners.forEach((listener) => listener(error));

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

/** Send a request; while the service's queue is full, wait as long as it asks. */
async function send(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  for (;;) {
    let reply;
    try {
      reply = await fetch(path, { ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Refusal(0, "The service does not answer. Is it still running?");
    }
    if (reply.status !== 429) return reply;
    await pause(Number(reply.headers.get("Retry-After")) || 1, options.signal);
  }
}

/** Fetch JSON, or throw a Refusal. `options` are those of fetch, and `quiet`: tell no listener. */
export async function call(path, { quiet = false, ...options } = {}) {
  try {
    const reply = await send(path, options);
    const value = await reply.json().catch(() => ({}));
    if (!reply.ok) throw new Refusal(reply.status, value.error?.message ?? reply.statusText);
    if (!quiet) tell(null);
    return value;
  } catch (error) {
    if (!quiet && error instanceof Refusal) tell(error);
    throw error;
  }
}

export const get = (path, options) => call(path, options);
export const post = (path, value, options) =>
  call(path, { ...options, method: "POST", body: JSON.stringify(value) });

export const models = () => get("v1/models");

/** Predict texts; returns one prediction per text. */
export async function predict(request, signal) {
  const reply = await post("v1/predict", request, { signal });
  return reply.predictions;
}
