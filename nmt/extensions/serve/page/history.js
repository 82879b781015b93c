// The history of texts, kept in this browser. If the browser forbids storage, it lasts as long as the page.

import { Stored, byId, element, languageName } from "./browser.js";

const MAX_ENTRIES = 50, MAX_CHARACTERS = 20_000;
const SAME_TEXT_MS = 5 * 60_000; // a text that grows within this time stays one entry
const stored = new Stored("history", "localStorage");

const entries = () => (Array.isArray(stored.value) ? stored.value : []);

// entry: {text, translation, from, to}, with the codes of the languages
export function remember(entry) {
  if (!entry.text.trim() || entry.text.length > MAX_CHARACTERS) return;
  stored.read();
  const kept = entries().filter((old) => !isEarlier(old, entry));
  stored.write([{ ...entry, time: Date.now() }, ...kept].slice(0, MAX_ENTRIES));
  draw();
}

function isEarlier(old, entry) {
  if (old.from !== entry.from || old.to !== entry.to) return false;
  const isRecent = Date.now() - old.time < SAME_TEXT_MS;
  return old.text === entry.text || (isRecent && (entry.text.startsWith(old.text) || old.text.startsWith(entry.text)));
}

let restore = () => {};

// `open` receives the entry that the user chose.
export function startHistory(open) {
  restore = open;
  stored.read();
  byId("forget").addEventListener("click", () => {
    stored.write([]);
    draw();
  });
  byId("history").addEventListener("toggle", draw);
  draw();
}

function draw() {
  const place = stored.isKept ? "only in this browser" : "only until you close this page, because the browser blocks storage";
  byId("history-note").textContent = entries().length ? `Kept ${place}.` : `Your translations will be listed here, ${place}.`;
  byId("forget").hidden = !entries().length;
  if (!byId("history").open) return;
  byId("entries").replaceChildren(...entries().map((entry) => {
    const languages = `${languageName(entry.from)} → ${languageName(entry.to)}`;
    const parts = [entry.text, entry.translation].map((text) => element("span", text, { dir: "auto" }));
    const made = element("button", [...parts, element("span", languages, { className: "languages-of" })], { type: "button" });
    made.addEventListener("click", () => restore(entry));
    return element("li", made);
  }));
}
