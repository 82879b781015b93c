// The pane with the translation: paragraphs of sentences, whose words are reached by mouse, or by one TAB stop and arrow keys.

import { byId, element, wordSpans } from "./browser.js";

const pane = byId("target"), mirror = byId("mirror"), source = byId("source");
const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
const MAX_MIRRORED = 20_000; // characters behind the text field; copying all of a long text would make typing slow
let sentences = []; // {before, text, gap, row, ...} in the order of the text
let spans = []; // their elements
let language = "";
let stop = null; // the word that TAB reaches
let onChoose = () => {}, onWord = () => {};

// onChoose(i): a sentence is pointed at; onWord(i, j, element): alternatives for a word are wanted
export function listen(choose, word) {
  [onChoose, onWord] = [choose, word];
}

const word = (i, j) => spans[i]?.querySelectorAll(".word")[j];
export const translationOf = (one) => one.row?.translation ?? one.old ?? "";

// Show new sentences. Those without a translation show the old one, or a sign that something is coming.
export function lay(found, after, targetLanguage) {
  sentences = found;
  language = pane.lang = targetLanguage;
  spans = found.map((_, i) => element("span", undefined, { className: "sentence", id: `sentence-${i}` }));
  const paragraphs = [element("p", undefined, { dir: "auto" })];
  found.forEach((one, i) => {
    place(paragraphs, one.gap);
    paragraphs.at(-1).append(spans[i]);
    show(i);
  });
  place(paragraphs, after);
  pane.classList.remove("stale");
  pane.replaceChildren(...(found.length ? paragraphs : []));
  stop = null;
  mark(-1);
  align(source, pane);
}

function place(paragraphs, gap) {
  gap.split("\n").forEach((part, k) => {
    if (k) paragraphs.push(element("p", undefined, { dir: "auto" }));
    if (part) paragraphs.at(-1).append(part);
  });
}

export function show(i) {
  const one = sentences[i], span = spans[i];
  const hadStop = span.contains(stop), hadFocus = span.contains(document.activeElement);
  span.className = "sentence" + (one.row ? "" : " pending") + (one.row?.error ? " failed" : "") + (one.row?.warnings ? " warned" : "");
  span.title = one.row?.error ?? one.row?.warnings?.join("; ") ?? "";
  span.replaceChildren(one.row?.error ? one.text : translationOf(one) || "…");
  if (hadStop) stop = null;
  if (hadFocus) reach(i, 0)?.focus();
}

// Divide a sentence into words that can be reached. Only sentences that someone uses are divided.
function divide(i) {
  const span = spans[i], one = sentences[i];
  if (!one?.row || one.row.error || span.querySelector(".word")) return;
  const text = one.row.translation, parts = [];
  let end = 0;
  wordSpans(text, language).forEach(([start, next], j) => {
    const made = element("span", text.slice(start, next), { className: "word", tabIndex: -1, role: "button", ariaHasPopup: "listbox" });
    Object.assign(made.dataset, { word: j, start });
    parts.push(text.slice(end, start), made);
    end = next;
  });
  span.replaceChildren(...parts, text.slice(end));
}

// Make a word the only TAB stop of the pane, and return it.
function reach(i, j) {
  divide(i);
  const found = spans[i]?.querySelectorAll(".word");
  const made = found?.[j < 0 ? found.length + j : Math.min(j, found.length - 1)];
  if (!made) return null;
  if (stop) stop.tabIndex = -1;
  made.tabIndex = 0;
  return (stop = made);
}

export function focusWord(i, j) {
  reach(i, j)?.focus();
}

// The translation is complete: TAB leads into it, and it follows the place where someone types.
export function complete() {
  if (document.activeElement === source) align(source, pane);
  if (!stop) for (let i = 0; i < sentences.length && !reach(i, 0); i++);
}

// Highlight a sentence and its source; -1 for none.
export function mark(i) {
  pane.querySelector(".sentence.current")?.classList.remove("current");
  spans[i]?.classList.add("current");
  const before = sentences.slice(0, i + 1).map((one) => one.before + one.text).join("");
  const text = source.value;
  if (i < 0 || before.length > MAX_MIRRORED || !text.startsWith(before)) return mirror.replaceChildren(text.slice(0, MAX_MIRRORED) + "\n ");
  const start = before.length - sentences[i].text.length;
  mirror.replaceChildren(text.slice(0, start), element("mark", sentences[i].text), text.slice(before.length, MAX_MIRRORED) + "\n ");
}

function placeOf(target) {
  const span = target.closest?.(".sentence");
  return span && pane.contains(span) ? spans.indexOf(span) : -1;
}

function step(event, i, j) {
  const isBackwards = getComputedStyle(spans[i].parentElement).direction === "rtl";
  let [byWord, bySentence] = STEPS[event.key];
  if (isBackwards) byWord = -byWord;
  if (bySentence) return next(i, bySentence, 0);
  const isInside = word(i, j + byWord) && j + byWord >= 0;
  return isInside ? reach(i, j + byWord) : next(i, byWord, byWord < 0 ? -1 : 0);
}

function next(i, by, j) {
  for (let k = i + by; k >= 0 && k < spans.length; k += by) {
    const found = reach(k, j);
    if (found) return found;
  }
  return null;
}

pane.addEventListener("keydown", (event) => {
  const i = placeOf(event.target), j = Number(event.target.dataset?.word);
  if (i < 0 || Number.isNaN(j) || event.altKey || event.metaKey) return;
  const isWhole = event.ctrlKey;
  if (event.key in STEPS && !isWhole) step(event, i, j)?.focus();
  else if (event.key === "Home") (isWhole ? next(-1, 1, 0) : reach(i, 0))?.focus();
  else if (event.key === "End") (isWhole ? next(spans.length, -1, -1) : reach(i, -1))?.focus();
  else if ((event.key === "Enter" || event.key === " ") && !isWhole) onWord(i, j, event.target);
  else return;
  event.preventDefault();
});
pane.addEventListener("click", (event) => {
  const i = placeOf(event.target), j = Number(event.target.dataset?.word);
  if (i < 0 || !getSelection().isCollapsed) return; // the user selects text
  onChoose(i);
  if (Number.isNaN(j)) return;
  reach(i, j).focus();
  onWord(i, j, event.target);
});
pane.addEventListener("pointerover", (event) => {
  const i = placeOf(event.target);
  if (i < 0) return;
  divide(i);
  mark(i);
});
pane.addEventListener("pointerleave", () => mark(placeOf(document.activeElement)));
pane.addEventListener("focusin", (event) => {
  const i = placeOf(event.target);
  mark(i);
  if (i >= 0) onChoose(i, Number(event.target.dataset.word));
});
pane.addEventListener("focusout", (event) => event.relatedTarget?.closest("#alternatives") || mark(-1));

// The panes scroll together, by the share of the text that is above.
const echoes = new Map(); // positions that `align` has set, whose scroll events mean nothing

function align(from, to) {
  const share = from.scrollTop / Math.max(from.scrollHeight - from.clientHeight, 1);
  to.scrollTop = share * (to.scrollHeight - to.clientHeight);
  echoes.set(to, to.scrollTop);
}

function follow(from, to) {
  if (Math.abs(from.scrollTop - (echoes.get(from) ?? -9)) < 2) return;
  echoes.delete(from);
  align(from, to);
}

source.addEventListener("scroll", () => {
  mirror.scrollTop = source.scrollTop;
  follow(source, pane);
});
pane.addEventListener("scroll", () => follow(pane, source));
