// Documents, which the server translates one after another while the page shows how far each one is.

import { byId, element } from "./browser.js";
import { ServerError, ask, json, persistently } from "./client.js";

const POLL_MS = 700; // time between two questions about a document
const MIB = 1 << 20;
let facts = { endings: [], max_bytes: 0 };
let languages = () => ({}); // returns {from, to}; from is "" if the server detects it
let queue = Promise.resolve();

export function startDocuments(given, chosenLanguages) {
  [facts, languages] = [given, chosenLanguages];
  byId("file").accept = [".txt", ...facts.endings].join(",");
  const shown = ["docx", "html", "md", "po", "xliff", "srt", "vtt", "csv", "json", "tmx"].filter((name) => facts.endings.includes(`.${name}`));
  byId("formats").textContent = `Drop files anywhere on this page, or choose them: ${["txt", ...shown].join(", ")}.`;
}

export const isText = (file) => /\.(txt|text)$/i.test(file.name) || (file.type === "text/plain" && !isDocument(file));
const isDocument = (file) => facts.endings.some((ending) => file.name.toLowerCase().endsWith(ending));

// Show a document in the list, and translate it when those before it are done.
export function addDocument(file) {
  const state = element("span", "Waiting…", { className: "state", role: "status" });
  byId("documents").append(element("li", [element("span", file.name, { className: "name", dir: "auto" }), state]));
  const { from, to } = languages();
  queue = queue.then(() => translateDocument(file, from, to, state)).catch((error) => tell(state, error.message, true));
}

function tell(state, text, isError = false) {
  state.textContent = text;
  state.classList.toggle("error", isError);
}

async function translateDocument(file, from, to, state) {
  if (file.size > facts.max_bytes) {
    return tell(state, `Too large: this server accepts documents of up to ${(facts.max_bytes / MIB).toFixed(1)} MiB.`, true);
  }
  tell(state, "Translating…");
  const work = () => finished(file, from, to, (seconds) => tell(state, `Translating… About ${seconds} s left.`));
  const { content, report, warnings } = await persistently(work, undefined, (error, seconds) =>
    tell(state, `${error.message} Trying again in ${seconds} s.`, true));
  const name = file.name.replace(/(\.[^.]*)?$/, `.${to}$1`);
  const href = URL.createObjectURL(content); // kept until the page is closed
  tell(state, report ? report[0].toUpperCase() + report.slice(1) + "." : "Translated.");
  state.after(element("a", "Save", { href, download: name, className: "button", ariaLabel: `Save ${name}` }));
  if (warnings) state.parentElement.append(listOf(warnings));
}

function listOf(warnings) {
  const title = warnings.length === 1 ? "1 warning" : `${warnings.length} warnings`;
  const rows = warnings.map((warning) => element("li", warning, { dir: "auto" }));
  return element("details", [element("summary", title), element("ul", rows)]);
}

// Send a document with DeepL's protocol, wait until it is translated, and return its content and what the server says about it.
async function finished(file, from, to, onSeconds) {
  const form = new FormData();
  form.append("target_lang", to);
  if (from) form.append("source_lang", from);
  form.append("file", file, file.name);
  const { document_id: id, document_key } = await json("v2/document", form);
  const address = `v2/document/${encodeURIComponent(id)}`;
  for (;;) {
    const answer = await json(address, { document_key }).catch(asIfRestarted);
    if (answer.status === "error") throw new Error(answer.error_message);
    if (answer.status === "done") return { ...answer, content: await (await ask(`${address}/result`, { document_key })).blob() };
    if (answer.seconds_remaining) onSeconds(answer.seconds_remaining);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

// A server that does not know the document has restarted, so the document is sent again.
function asIfRestarted(error) {
  throw error.status === 404 ? new ServerError(0, "The server has restarted.", NaN) : error;
}
