// What else a model would say: alternatives for a word, and the candidates and the attention of a sentence.

import { byId, element, prefixEnd, spacedWords, wordSpans } from "./browser.js";
import { json } from "./client.js";

const CANDIDATES = 4, ALTERNATIVES = 8;
const menu = byId("alternatives");
let asking = new AbortController();
let opener = null; // the word for which the menu is open

// Question about one sentence. `more` replaces or adds fields.
function question(one, model, text, more) {
  const context = one.context.length ? { context: one.context } : {};
  return { text: { text: one.asked, ...context, ...text }, model, ...more };
}

// Offer other words at a place of a translation. `take` receives the whole translation that starts with the chosen one.
export async function offerAlternatives(one, model, language, anchor, take) {
  asking.abort();
  asking = new AbortController();
  const translation = one.row.translation;
  const start = prefixEnd(translation, Number(anchor.dataset.start), language);
  openMenu(anchor, [note("Looking for alternatives…")]);
  try {
    const prefix = translation.slice(0, start).trim();
    const asked = question(one, model, { prefix }, { n_best: ALTERNATIVES, alternatives: true, split: true });
    const { translations } = await json("v1/translate", asked, asking.signal);
    const found = distinct(translation, start, translations[0].candidates ?? [], language);
    const options = found.map((choice) => option(choice, () => take(choice.text)));
    openMenu(anchor, options.length ? options : [note("The model has no alternative for this word.")]);
  } catch (error) {
    if (error.name !== "AbortError") openMenu(anchor, [note(error.message)]);
  }
}

// The candidates that share the words before the place, one for each different word there.
function distinct(translation, start, candidates, language) {
  const seen = new Set([firstWord(translation.slice(start), language)]);
  const found = [];
  for (const { text } of candidates) {
    const word = firstWord(text.slice(start), language);
    if (text.slice(0, start).trim() !== translation.slice(0, start).trim() || !word || seen.has(word)) continue;
    seen.add(word);
    found.push({ text, word, rest: text.slice(start).trimStart().slice(word.length) });
  }
  return found;
}

function firstWord(text, language) {
  const [first] = wordSpans(text, language);
  return first ? text.slice(0, first[1]).trim() : text.trim();
}

const note = (text) => element("li", text, { className: "note" });

function option({ word, rest }, take) {
  const made = element("li", [element("strong", word), element("span", rest)], { role: "option", tabIndex: -1, title: word + rest });
  made.addEventListener("click", () => {
    close();
    take();
  });
  return made;
}

function openMenu(anchor, items) {
  menu.replaceChildren(...items);
  if (!menu.matches(":popover-open")) {
    menu.showPopover();
    opener = anchor;
    anchor.classList.add("open");
  }
  put(anchor.getBoundingClientRect());
  if (items[0].role === "option") items[0].focus();
}

const close = () => menu.hidePopover();

menu.addEventListener("beforetoggle", (event) => {
  if (event.newState === "open") return;
  asking.abort();
  opener.classList.remove("open");
});

// Put the menu below the word, or above it if there is more room.
function put(word) {
  const width = document.documentElement.clientWidth;
  menu.style.left = `${Math.max(12, Math.min(word.left - 12, width - menu.offsetWidth - 12))}px`;
  const isBelow = word.bottom + menu.offsetHeight + 12 < innerHeight || word.top < innerHeight - word.bottom;
  menu.style.top = isBelow ? `${word.bottom + 6}px` : "";
  menu.style.bottom = isBelow ? "" : `${innerHeight - word.top + 6}px`;
}

menu.addEventListener("keydown", (event) => {
  const items = [...menu.querySelectorAll("[role=option]")], i = items.indexOf(document.activeElement);
  if (event.key === "ArrowDown") items[(i + 1) % items.length]?.focus();
  else if (event.key === "ArrowUp") items.at(i - 1)?.focus();
  else if (event.key === "Home") items[0]?.focus();
  else if (event.key === "End") items.at(-1)?.focus();
  else if (event.key === "Enter" || event.key === " ") items[i]?.click();
  else if (event.key === "Tab") close();
  else return;
  if (event.key !== "Tab") event.preventDefault();
});
document.addEventListener("scroll", (event) => event.target !== menu && close(), { capture: true });

// The candidates and the attention of a sentence, which are fetched when they are first shown.
export async function showDetails(one, model, take) {
  if (!byId("details").open || !one?.row || one.row.error || !model) return;
  showing = one;
  const translation = one.row.translation;
  try {
    one.candidates ??= askForCandidates(one, model, {}, { n_best: CANDIDATES });
    const candidates = [...(await one.candidates)];
    if (!candidates.some((candidate) => isSame(candidate.text, translation))) {
      candidates.unshift(...(await askForCandidates(one, model, { prefix: translation }, {})));
    }
    if (showing === one && one.row.translation === translation) fill(one, candidates, take);
  } catch (error) {
    one.candidates = undefined;
    if (showing === one) say(error.message);
  }
}
let showing = null;

const isSame = (text, other) => spacedWords(text).join(" ") === spacedWords(other).join(" ");

// The candidates with their attention, or without it if the model has none.
async function askForCandidates(one, model, text, more) {
  const asked = (fields) => json("v1/translate", question(one, model, text, fields));
  const { translations } = await asked({ ...more, alignment: true }).catch((error) => {
    if (error.status !== 400) throw error;
    return asked(more);
  });
  return translations[0].candidates ?? [];
}

function say(text, isSentence = false) {
  byId("details-note").textContent = text;
  byId("details-note").classList.toggle("sentence-shown", isSentence);
  byId("candidates").replaceChildren();
  byId("attention").replaceChildren();
}

function fill(one, candidates, take) {
  const same = (text) => isSame(text, one.row.translation);
  say(one.text, true);
  byId("details-note").dir = "auto";
  byId("candidates").append(...candidates.map((candidate) => {
    const score = element("span", candidate.score.toFixed(2), { className: "score", title: "score of the search; higher is better" });
    const made = element("button", [element("span", candidate.text), score], { type: "button", ariaPressed: String(same(candidate.text)) });
    made.addEventListener("click", () => take(candidate.text));
    return element("li", made);
  }));
  const shown = candidates.find((candidate) => same(candidate.text));
  if (shown?.alignment) byId("attention").append(heatmap(spacedWords(one.text), spacedWords(shown.text), shown.alignment));
}

function heatmap(sources, targets, weights) {
  const table = element("table", undefined, { ariaLabel: "Attention: how much each word of the translation looked at each source word" });
  table.createTHead().insertRow().append(element("td"), ...sources.map((word) => element("th", word, { scope: "col" })));
  const body = table.createTBody();
  targets.forEach((word, i) => {
    const row = body.insertRow();
    row.append(element("th", word, { scope: "row" }));
    sources.forEach((_, j) => {
      const weight = weights[i]?.[j] ?? 0;
      const cell = element("td", undefined, { title: `${word}: ${Math.round(100 * weight)} %` });
      cell.style.setProperty("--share", `${Math.round(100 * weight)}%`);
      row.append(cell);
    });
  });
  return table;
}

export function markWord(j) {
  [...byId("attention").querySelectorAll("tbody tr")].forEach((row, i) => row.classList.toggle("current", i === j));
}

export function closeDetails() {
  showing = null;
  say("Choose a sentence of the translation to see how the model arrived at it.");
}
