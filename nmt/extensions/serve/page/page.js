// The page of `nmt serve`. A text is split into sentences by the server, and each sentence is translated by itself: what has been
// translated before is not sent again, and an answer can never appear in the place of another one.
//
// browser.js: elements, storage, words    client.js: requests and retries    pane.js: the translation and its keys
// choices.js: alternatives, attention     documents.js, history.js: the sections below the panes

import { Stored, byId, copy, element, languageName, save } from "./browser.js";
import { closeDetails, markWord, offerAlternatives, showDetails } from "./choices.js";
import { ServerError, events, json, manageKey, persistently } from "./client.js";
import { addDocument, isText, startDocuments } from "./documents.js";
import { remember, startHistory } from "./history.js";
import * as pane from "./pane.js";

const WAIT_MS = 250; // time between the last key press and the translation
const SETTLED_MS = 2500; // time after which a translation enters the history
const SENTENCES_PER_REQUEST = 64, CHARACTERS_PER_REQUEST = 20_000;
const MAX_OPENED_BYTES = 300_000; // larger text files are translated as documents
const LONG = 40; // number of missing sentences from which the bar shows the share that is done
const MAX_SPLITS = 100, MAX_KNOWN = 50_000;
const AUTO = "auto";
const source = byId("source"), from = byId("from"), to = byId("to"), target = byId("target");
const chosen = new Stored("languages", "localStorage");
let facts = { directions: [] };
const known = new Map(); // translations by model, context and sentence
const splits = new Map(); // the sentences of the last blocks of text, by request
let text = { sentences: [], after: "", model: null, from: "", to: "" }; // the text whose translation is shown
let current = -1; // the sentence whose details are shown
let typing, settling, running = new AbortController();

// Translation

function typed() {
  clearTimeout(typing);
  clearTimeout(settling);
  running.abort(); // its answers would be late
  pane.mark(-1);
  drawSource();
  target.classList.add("stale");
  if (source.value.trim()) say("Translating…");
  typing = setTimeout(translate, WAIT_MS);
}

function drawSource() {
  const length = [...source.value].length;
  byId("count").textContent = length ? `${length.toLocaleString("en")} characters` : "";
  byId("clear").hidden = !length;
}

async function translate() {
  clearTimeout(typing);
  running.abort();
  const { signal } = (running = new AbortController());
  target.ariaBusy = "true";
  byId("progress").hidden = !source.value.trim();
  byId("progress").removeAttribute("value");
  try {
    await persistently((progress) => translateOnce(signal, progress), signal, sayPause);
    finish();
  } catch (error) {
    if (signal.aborted) return;
    say(error.message, "error");
  }
  target.ariaBusy = "false";
  byId("progress").hidden = true;
}

async function translateOnce(signal, progress) {
  const value = wellFormed(source.value);
  if (!value.trim()) return lay({ sentences: [], after: "", model: null, from: "", to: to.value, confidence: 0 });
  const found = await split(value, signal);
  say("Translating…");
  lay(found);
  if (found.model === null) return;
  const missing = [...new Set(text.sentences.filter((one) => !one.row).map((one) => one.id))];
  const places = placesOf(missing);
  let done = 0;
  for (const ids of blocks(missing, (id) => places.get(id)[0].one.asked.length, SENTENCES_PER_REQUEST)) {
    await translateBlock(ids, places, signal, () => {
      progress();
      if (missing.length > LONG) byId("progress").value = ++done / missing.length;
    });
  }
}

const wellFormed = (value) => (value.toWellFormed ? value.toWellFormed() : value);

// Split the text, in blocks of lines if it is long. The first block decides about the language.
async function split(value, signal) {
  const lines = value.match(/[^\n]*\n+|[^\n]+$/g);
  const limit = Math.min(CHARACTERS_PER_REQUEST, facts.max_characters);
  let whole = null;
  for (const block of blocks(lines.flatMap((line) => cut(line, limit)), (line) => line.length, Infinity)) {
    const asked = { text: block.join(""), target: to.value, source: whole?.source ?? (from.value === AUTO ? null : from.value) };
    const model = whole ? whole.model : byId("model").value || null;
    const part = await splitBlock({ ...asked, model }, signal);
    whole = whole ? joined(whole, part) : part;
  }
  return { ...whole, from: whole.source, to: to.value };
}

// Split a block, or find it among the last ones: in a long text, most blocks stay the same while someone types.
async function splitBlock(asked, signal) {
  const id = JSON.stringify(asked);
  const part = splits.get(id) ?? (await json("page/sentences", asked, signal));
  splits.delete(id);
  splits.set(id, part);
  if (splits.size > MAX_SPLITS) splits.delete(splits.keys().next().value);
  return { ...part, sentences: part.sentences.map((one) => ({ ...one })) };
}

// Cut a line that is longer than a request, at spaces if possible.
function cut(line, limit) {
  const parts = [];
  while (line.length > limit) {
    const space = line.lastIndexOf(" ", limit - 1);
    const end = space > 0 ? space + 1 : limit;
    parts.push(line.slice(0, end));
    line = line.slice(end);
  }
  return [...parts, line];
}

function joined(whole, part) {
  const [first, ...others] = part.sentences;
  if (!first) return { ...whole, after: whole.after + part.after };
  const moved = { ...first, before: whole.after + first.before, gap: whole.after + first.gap };
  return { ...whole, model: whole.model ?? part.model, sentences: [...whole.sentences, moved, ...others], after: part.after };
}

// Show the sentences with the translations that are known. The others show the previous translation of their place, dimmed.
function lay(found) {
  const shown = text.to === found.to ? text.sentences : [];
  found.sentences.forEach((one, i) => {
    one.context = found.context ? found.sentences.slice(Math.max(0, i - found.context), i).map((other) => other.text) : [];
    one.asked = one.tags ? `${one.tags} ${one.text}` : one.text;
    one.id = JSON.stringify([found.model, one.context, one.asked]);
    one.row = found.model === null ? { translation: one.text } : known.get(one.id);
    one.old = shown[i] && pane.translationOf(shown[i]);
  });
  text = found;
  pane.lay(found.sentences, found.after, found.to);
  current = -1;
  closeDetails();
  tellLanguage();
  drawButtons();
}

function placesOf(ids) {
  const places = new Map(ids.map((id) => [id, []]));
  text.sentences.forEach((one, i) => places.get(one.id)?.push({ one, i }));
  return places;
}

// Yield the items in blocks that a request may contain.
function* blocks(items, length, most) {
  let block = [], characters = 0;
  for (const item of items) {
    characters += length(item);
    if (block.length && (block.length >= Math.min(most, facts.max_texts) || characters > Math.min(CHARACTERS_PER_REQUEST, facts.max_characters))) {
      yield block;
      [block, characters] = [[], length(item)];
    }
    block.push(item);
  }
  if (block.length) yield block;
}

async function translateBlock(ids, places, signal, onRow) {
  const asked = ids.map((id) => places.get(id)[0].one).map((one) => (one.context.length ? { text: one.asked, context: one.context } : one.asked));
  let isEnded = false;
  for await (const { name, content } of events("v1/translate", { text: asked, model: text.model, split: true, stream: true }, signal)) {
    if (name === "error") throw new ServerError(content.error.status, content.error.message, NaN);
    if (name === "end") isEnded = true;
    else {
      keep(ids[content.index], content, places);
      onRow();
    }
  }
  if (!isEnded) throw new ServerError(0, "The connection was lost.", NaN);
}

function keep(id, row, places) {
  if (known.size > MAX_KNOWN) known.clear();
  known.set(id, row);
  for (const { one, i } of places.get(id)) {
    one.row = row;
    pane.show(i);
  }
}

function finish() {
  const count = (field) => text.sentences.filter((one) => one.row?.[field]).length;
  const [failed, warned] = [count("error"), count("warnings")];
  if (failed) say(`${sentences(failed)} could not be translated. Choose one to see why.`, "error");
  else if (warned) say(`Warnings about ${sentences(warned)}. Choose one to read it.`, "warning");
  else if (text.model !== null || !text.sentences.length) say("");
  pane.complete();
  drawButtons();
  settle();
}

function settle() {
  clearTimeout(settling);
  const entry = () => ({ text: source.value, translation: translation(), from: text.from, to: text.to });
  settling = setTimeout(() => remember(entry()), SETTLED_MS);
}

const sentences = (count) => (count === 1 ? "1 sentence" : `${count.toLocaleString("en")} sentences`);

function translation() {
  return text.sentences.map((one) => one.gap + (one.row && !one.row.error ? one.row.translation : one.text)).join("") + text.after;
}

function say(message, kind = "") {
  const status = byId("status");
  if (status.textContent !== message) status.textContent = message;
  status.className = kind;
  byId("retry").hidden = byId("countdown").hidden = byId("switch").hidden = true;
}

// Say why there is a pause. Screen readers hear the reason, but not each second.
function sayPause(error, seconds, wake) {
  say(error.message, "error");
  byId("countdown").textContent = `Trying again in ${seconds} s.`;
  byId("retry").hidden = byId("countdown").hidden = false;
  byId("retry").onclick = () => {
    wake();
    source.focus(); // the button disappears
  };
}

function drawButtons() {
  const isEmpty = !text.sentences.length;
  byId("copy").hidden = byId("save").hidden = isEmpty;
}

// Words and sentences

function choose(i, j) {
  const { row } = text.sentences[i] ?? {};
  current = i;
  if (row?.error) say(row.error, "error");
  else if (row?.warnings) say(row.warnings.join("; "), "warning");
  showDetails(text.sentences[i], text.model, (made) => take(i, made)).then(() => markWord(j));
}

// Replace the translation of a sentence with one that the user prefers.
function take(i, made, j) {
  const one = text.sentences[i];
  if (!one) return;
  one.row = { ...one.row, translation: made };
  known.set(one.id, one.row);
  pane.show(i);
  settle();
  if (j !== undefined) pane.focusWord(i, j);
  else choose(i);
}

function alternatives(i, j, anchor) {
  if (text.model !== null) offerAlternatives(text.sentences[i], text.model, text.to, anchor, (made) => take(i, made, j));
}

// Languages

function fillMenu(menu, codes, first = []) {
  const old = menu.value;
  const named = codes.map((code) => [code, languageName(code)]).sort((a, b) => a[1].localeCompare(b[1]));
  menu.replaceChildren(...[...first, ...named].map(([value, name]) => element("option", name, { value })));
  if ([...menu.options].some((option) => option.value === old)) menu.value = old;
}

const targetsOf = (code) => [...new Set(facts.directions.filter((one) => code === AUTO || one.source === code).map((one) => one.target))];
const hasDirection = (one, other) => facts.directions.some(({ source: a, target: b }) => a === one && b === other);

function fillLanguages() {
  const sources = [...new Set(facts.directions.map((one) => one.source))];
  fillMenu(from, sources, [[AUTO, "Detect language"]]);
  const old = chosen.read() ?? {};
  from.value = [...sources, AUTO].includes(old.from) ? old.from : sources.length > 1 ? AUTO : sources[0];
  fillMenu(to, targetsOf(from.value));
  if (targetsOf(from.value).includes(old.to)) to.value = old.to;
  else if (facts.directions.length) to.value = facts.directions.find((one) => [AUTO, one.source].includes(from.value)).target;
  drawLanguages();
}

// Choose languages, as far as there are models for them.
function setLanguages(one, other) {
  if ([...from.options].some((option) => option.value === one)) from.value = one;
  fillMenu(to, targetsOf(from.value));
  if (targetsOf(from.value).includes(other)) to.value = other;
  chosen.write({ from: from.value, to: to.value });
  drawLanguages();
}

function drawLanguages() {
  const models = facts.directions.filter((one) => one.source === spoken() && one.target === to.value);
  byId("model").replaceChildren(...models.map((one) => element("option", one.model, { value: one.model })));
  byId("model-field").hidden = models.length < 2;
  if (models.length < 2 || from.value === AUTO) byId("model").replaceChildren();
  byId("swap").disabled = !hasDirection(to.value, spoken());
  source.lang = spoken();
  from.options[0].textContent = from.value === AUTO && text.from && text.sentences.length ? `${languageName(text.from)} (detected)` : "Detect language";
}

// The language of the text: the chosen one, or the one that was detected last.
const spoken = () => (from.value === AUTO ? text.from : from.value);

function tellLanguage() {
  drawLanguages();
  if (text.model !== null || !text.sentences.length) return;
  const isForeign = text.from !== text.to && text.confidence > 0;
  const name = languageName(text.from);
  if (isForeign) say(`This text seems to be in ${name}, which this server does not translate into ${languageName(text.to)}.`, "warning");
  else say(text.from === text.to ? `This text seems to be in ${name} already.` : "There is nothing to translate.");
  const [other] = targetsOf(text.from);
  if (!other || text.confidence === 0) return;
  byId("switch").textContent = `Translate into ${languageName(other)}`;
  byId("switch").hidden = false;
  byId("switch").onclick = () => {
    changeLanguages(from.value, other);
    source.focus(); // the button disappears
  };
}

function changeLanguages(one, other) {
  setLanguages(one, other);
  if (source.value.trim()) translate();
}

function swap() {
  const [one, other, made] = [spoken(), to.value, translation()];
  setText(made);
  changeLanguages(other, one);
}

function setText(value) {
  source.value = value;
  drawSource();
  pane.mark(-1);
}

// Files

async function openFiles(files) {
  for (const file of files) {
    if (isText(file) && file.size <= MAX_OPENED_BYTES) {
      setText((await decoded(file)).replace(/\r\n?/g, "\n").replace(/\n$/, ""));
      translate();
    } else addDocument(file); // the server says which documents it cannot read
  }
}

// A text file, which may be UTF-16 with a byte order mark.
async function decoded(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const mark = (bytes[0] << 8) | bytes[1];
  return new TextDecoder({ 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[mark] ?? "utf-8").decode(bytes);
}

function dragging(event) {
  const hasFiles = event.dataTransfer?.types.includes("Files");
  if (!hasFiles) return;
  event.preventDefault();
  byId("overlay").hidden = event.type === "drop" || (event.type === "dragleave" && event.relatedTarget !== null);
  if (event.type === "drop") openFiles(event.dataTransfer.files);
}

// Start

function listen() {
  source.addEventListener("input", typed);
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
  });
  from.addEventListener("change", () => changeLanguages(from.value, to.value));
  to.addEventListener("change", () => changeLanguages(from.value, to.value));
  byId("model").addEventListener("change", translate);
  byId("swap").addEventListener("click", swap);
  byId("clear").addEventListener("click", () => {
    setText("");
    source.focus();
    translate();
  });
  byId("copy").addEventListener("click", async () => {
    if (await copy(translation())) say("Copied.");
    else say("The browser does not allow copying.", "error");
  });
  byId("save").addEventListener("click", () => save(new Blob([translation() + "\n"], { type: "text/plain" }), `translation.${to.value}.txt`));
  byId("file").addEventListener("change", (event) => {
    openFiles([...event.target.files]);
    event.target.value = "";
  });
  byId("details").addEventListener("toggle", () => choose(Math.max(current, 0)));
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) document.addEventListener(kind, dragging);
  pane.listen(choose, alternatives);
}

async function start() {
  listen();
  facts = await persistently(() => json("page/facts"), undefined, sayPause);
  manageKey(facts.keys, translate);
  fillLanguages();
  startDocuments(facts, () => ({ from: from.value === AUTO ? "" : from.value, to: to.value }));
  startHistory((entry) => {
    setText(entry.text);
    changeLanguages(entry.from, entry.to);
    source.focus();
  });
  say("");
  drawSource();
  if (source.value.trim()) translate();
}

start();
