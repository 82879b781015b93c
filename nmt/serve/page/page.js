"use strict";
// The page of `nmt serve`: text is translated while it is typed; a line's words, candidates and attention are shown.

const WAIT_MS = 300; // after the last key before a text is translated
const LINES_A_REQUEST = 20;
const CANDIDATES = 4;
const byId = (id) => document.getElementById(id);
const source = byId("source"), target = byId("target"), message = byId("message");
let rows = []; // of the answer: one for each line of the text
let lines = [];
let chosen = 0; // number of the line whose details are shown
let timer, running;

function element(name, text, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== undefined) made.textContent = text;
  return made;
}

async function ask(path, body, signal) {
  const headers = body ? { "content-type": "application/json" } : {};
  if (byId("key").value) headers.authorization = "Bearer " + byId("key").value;
  const options = body ? { method: "POST", body: JSON.stringify(body), headers, signal } : { headers, signal };
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (answer.status === 403) byId("key-field").hidden = false;
  if (!answer.ok) throw new Error(content.error.message);
  return content;
}

function say(text, isError = false) {
  message.textContent = text;
  message.className = isError ? "error" : "";
}

async function translate() {
  clearTimeout(timer);
  if (running) running.abort();
  const own = (running = new AbortController());
  lines = source.value.split("\n");
  rows = lines.map(() => null);
  const progress = byId("progress");
  target.setAttribute("aria-busy", "true");
  say("");
  try {
    for (let start = 0; start < lines.length; start += LINES_A_REQUEST) {
      const part = lines.slice(start, start + LINES_A_REQUEST);
      const question = { text: part, model: byId("model").value, n_best: CANDIDATES, alignment: true };
      const answer = await ask("v1/translate", question, own.signal);
      answer.translations.forEach((row, i) => (rows[start + i] = row));
      progress.hidden = lines.length <= LINES_A_REQUEST;
      progress.value = Math.min(1, (start + part.length) / lines.length);
      show();
    }
    progress.hidden = true;
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.message, true);
  }
  target.setAttribute("aria-busy", "false");
}

function words(text) {
  return text.split(" ").filter((word) => word);
}

function show() {
  target.replaceChildren(...rows.map((row, i) => {
    const paragraph = element("p", undefined, { className: i === chosen ? "chosen" : "" });
    if (row === null) return paragraph;
    if (row.error) return element("p", row.error, { className: "error" });
    const weights = row.candidates && row.candidates.length ? row.candidates[0].alignment : [];
    words(row.translation).forEach((word, j) => {
      const made = element("span", word, { className: "word", tabIndex: 0 });
      for (const kind of ["mouseenter", "focus"]) made.addEventListener(kind, () => point(i, weights[j] || []));
      paragraph.append(made, " ");
    });
    return paragraph;
  }));
  const text = rows.map((row) => (row ? row.translation : "")).join("\n");
  const save = byId("save");
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([text + "\n"], { type: "text/plain" }));
  save.hidden = !text.trim();
  choose(Math.min(chosen, rows.length - 1));
}

function point(line, weights) {
  if (line !== chosen) choose(line);
  const most = Math.max(...weights, 1e-9);
  [...byId("source-words").children].forEach((word, i) => {
    word.style.background = `hsl(var(--accent) / ${(weights[i] || 0) / most * 0.8})`;
  });
}

function choose(line) {
  chosen = line;
  [...target.children].forEach((paragraph, i) => paragraph.classList.toggle("chosen", i === line));
  const row = rows[line];
  const details = byId("details");
  details.hidden = !(row && row.candidates && row.candidates.length);
  if (details.hidden) return;
  byId("line-number").textContent = line + 1;
  const sources = words(lines[line]);
  byId("source-words").replaceChildren(...sources.map((word) => element("span", word + " ")));
  byId("candidates").replaceChildren(...row.candidates.map((candidate) => {
    const button = element("button", candidate.text, { type: "button", title: `score ${candidate.score.toFixed(3)}` });
    button.addEventListener("click", () => take(line, candidate));
    const item = element("li");
    item.append(button);
    return item;
  }));
  byId("attention").replaceChildren(heatmap(sources, row.candidates[0]));
}

function take(line, candidate) {
  const others = rows[line].candidates.filter((other) => other !== candidate);
  rows[line] = { ...rows[line], translation: candidate.text, candidates: [candidate, ...others] };
  show();
}

function heatmap(sources, candidate) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  head.append(element("td"), ...sources.map((word) => element("th", word, { scope: "col" })));
  const body = table.createTBody();
  words(candidate.text).forEach((word, i) => {
    const row = body.insertRow();
    row.append(element("th", word, { scope: "row" }));
    sources.forEach((_, j) => {
      const weight = (candidate.alignment[i] || [])[j] || 0;
      const cell = element("td", undefined, { title: weight.toFixed(2) });
      cell.style.background = `hsl(var(--accent) / ${weight})`;
      row.append(cell);
    });
  });
  return table;
}

function typed() {
  clearTimeout(timer);
  timer = setTimeout(translate, WAIT_MS);
  byId("count").textContent = `${source.value.length.toLocaleString()} characters`;
}

async function open(file) {
  if (!file) return;
  source.value = (await file.text()).replace(/\r\n?/g, "\n").replace(/\n$/, "");
  typed();
}

source.addEventListener("input", typed);
source.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
byId("model").addEventListener("change", translate);
byId("key").addEventListener("change", start);
byId("settings").addEventListener("submit", (event) => event.preventDefault());
byId("clear").addEventListener("click", () => {
  source.value = "";
  source.focus();
  translate();
});
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(rows.map((row) => (row ? row.translation : "")).join("\n"));
  say("copied");
});
byId("file").addEventListener("change", (event) => open(event.target.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    source.classList.toggle("dropping", kind === "dragover");
    if (kind === "drop") open(event.dataTransfer.files[0]);
  });
}

async function start() {
  try {
    const { directions } = await ask("v1/directions");
    const options = directions.map(({ model, source: from, target: to }) =>
      element("option", `${model} (${from} to ${to})`, { value: model }));
    byId("model").replaceChildren(...options);
    say("");
    if (source.value) translate();
  } catch (error) {
    say(error.message, true);
  }
}
start();
