// Sends requests to the server, and repeats them while it is unreachable, restarting or busy.

import { Stored, byId } from "./browser.js";

const MAX_PAUSE = 20; // seconds between two attempts
const PASSING = new Set([429, 502, 503, 504]); // statuses of failures that pass
const key = new Stored("key", "sessionStorage");

export class ServerError extends Error {
  constructor(status, message, pause) {
    super(message);
    this.status = status; // HTTP status; 0 if there was no response
    this.pause = pause; // seconds that the server asks for, or NaN
  }

  get isPassing() {
    return this.status === 0 || PASSING.has(this.status);
  }
}

const unreachable = () => new ServerError(0, "The server cannot be reached.", NaN);

// Ask once. `body` is a form, or anything that JSON can represent; without one, the request is a GET.
export async function ask(path, body, signal) {
  const options = { headers: key.value ? { authorization: `Bearer ${key.value}` } : {}, signal };
  if (body !== undefined) options.method = "POST";
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const response = await fetch(path, options).catch((error) => {
    throw error.name === "AbortError" ? error : unreachable();
  });
  if (!response.ok) throw await failure(response);
  signal?.throwIfAborted();
  return response;
}

async function failure(response) {
  const content = await response.json().catch(() => ({}));
  const told = content.error?.message ?? content.message ?? content.error;
  if (response.status === 403) {
    byId("key-field").hidden = false;
    return new ServerError(403, key.value ? "The server does not know this API key." : "Enter an API key to translate.");
  }
  const message = { 429: "The server receives too many requests.", 503: "The server is busy or restarting." }[response.status];
  return new ServerError(response.status, message ?? sentence(told ?? response.statusText), retryAfter(response));
}

function retryAfter(response) {
  const given = response.headers.get("retry-after") ?? "";
  return /^\d+$/.test(given) ? Number(given) : (Date.parse(given) - Date.now()) / 1000;
}

function sentence(text) {
  const message = String(text || "The server reported an error without a message");
  return message[0].toUpperCase() + message.slice(1) + (/[.!?)]$/.test(message) ? "" : ".");
}

export async function json(path, body, signal) {
  const content = await (await ask(path, body, signal)).json();
  signal?.throwIfAborted(); // a late answer is none
  return content;
}

// Yield the name and the content of each server-sent event as soon as it arrives.
export async function* events(path, body, signal) {
  const reader = (await ask(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : unreachable();
    });
    signal?.throwIfAborted();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const [, name, content] = part.match(/^event: (.*)\ndata: (.*)$/);
      yield { name, content: JSON.parse(content) };
    }
  }
}

// Do some work until it succeeds or fails for good. `onPause(error, seconds, wake)` is told about each second of a pause.
export async function persistently(work, signal, onPause) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await work(() => (attempt = 0)); // the work calls this when it makes progress
    } catch (error) {
      if (!error.isPassing) throw error;
      await pause(error, Number.isFinite(error.pause) ? error.pause : Math.min(2 ** attempt, MAX_PAUSE), signal, onPause);
    }
  }
}

async function pause(error, length, signal, onPause) {
  const seconds = Math.max(length, 1), end = Date.now() + 1000 * seconds;
  let isAwake = false;
  const wake = () => (isAwake = true);
  window.addEventListener("online", wake);
  for (let left = seconds; left > 0 && !isAwake; left = (end - Date.now()) / 1000) {
    signal?.throwIfAborted();
    onPause?.(error, Math.ceil(left), wake);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  window.removeEventListener("online", wake);
}

// Show the key field if the server needs a key, and call `onChange` for each new key.
export function manageKey(isNeeded, onChange) {
  byId("key").value = key.read() ?? "";
  byId("key-field").hidden = !(isNeeded || key.value);
  byId("key-field").addEventListener("submit", (event) => event.preventDefault());
  byId("key").addEventListener("change", () => {
    key.write(byId("key").value.trim());
    onChange();
  });
}
