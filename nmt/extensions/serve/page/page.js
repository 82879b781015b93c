"use strict";
// The page of `nmt serve`: translates text while it is typed, and shows each line as soon as the server sends it, with the
// words, candidates and attention of one line.

const WAIT_MS = 300; // time between the last key press and the translation
const LINES_PER_REQUEST = 64, CHARACTERS_PER_REQUEST = 20000;
const LINES_OF_A_LONG_TEXT = 20; // number of lines from which a progress bar is shown
const CANDIDATES = 4;
const byId = (id) => document.getElementById(id);
const source = byId("source"), target = byId("target"), message = byId("message");
let rows = []; // rows of the response, one per line of the text
let lines = [];
let chosen = 0; // index of the line whose details are shown
let timer, running;
const plain = new Set(); // models that support neither candidates nor attention

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
  if (answer.status === 403) byId("key-field").hidden = false;
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).error.message), { status: answer.status });
  return answer;
}

// Translate with candidates, or without them if the model does not support them.
async function askForCandidates(question, signal) {
  if (!plain.has(question.model)) {
    try {
      return await ask("v1/translate", { ...question, n_best: CANDIDATES }, signal);
    } catch (error) {
      if (error.status !== 400) throw error;
    }
  }
  const answer = await ask("v1/translate", question, signal);
  plain.add(question.model);
  return answer;
}

// Add the whole line's attention to a row, if the line's translation equals the one made sentence by sentence.
async function askForAttention(line) {
  const row = rows[line], model = byId("model").value;
  if (row.asked || plain.has(model)) return;
  row.asked = true;
  try {
    const { translations } = await (await ask("v1/translate", { text: lines[line], model, alignment: true })).json();
    const [best] = translations[0].candidates || [];
    if (rows[line] !== row || !best || words(best.text).join(" ") !== words(row.translation).join(" ")) return;
    row.weights = best.alignment;
    if (line === chosen) choose(line);
  } catch (error) {
    if (error.status !== 400) say(error.message, true); // a model without attention
  }
}

// Yield the name and the content of each server-sent event as soon as it arrives.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const [, name, content] = part.match(/^event: (.*)\ndata: (.*)$/);
      yield { name, content: JSON.parse(content) };
    }
  }
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
  chosen = Math.min(chosen, lines.length - 1);
  [...target.children].slice(lines.length).forEach((paragraph) => paragraph.remove());
  while (target.children.length < lines.length) target.append(element("p"));
  const progress = byId("progress");
  target.setAttribute("aria-busy", "true");
  say("");
  try {
    let count = 0;
    for (const [start, end] of parts(lines)) {
      const question = { text: lines.slice(start, end), model: byId("model").value, split: true, stream: true };
      let isEnded = false;
      for await (const { name, content } of events(await askForCandidates(question, own.signal))) {
        if (name === "error") throw new Error(content.error.message);
        if (name === "end") isEnded = true;
        else {
          rows[start + content.index] = content;
          show(start + content.index);
          progress.value = ++count / lines.length;
          progress.hidden = lines.length < LINES_OF_A_LONG_TEXT;
        }
      }
      if (!isEnded) throw new Error("the connection closed before the translation was complete");
    }
    const warned = rows.filter((row) => row && (row.error || row.warnings)).length;
    if (warned) say(`${warned} of ${lines.length} lines have warnings (hover over a line to read them)`);
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.message, true);
    rows.forEach((row, i) => row || show(i)); // clears the previous translation
  }
  progress.hidden = true;
  offer();
  target.setAttribute("aria-busy", "false");
}

// Yield the range of lines of each request: [start, end).
function* parts(lines) {
  let start = 0, characters = 0;
  for (let i = 0; i < lines.length; i++) {
    characters += lines[i].length;
    if (i > start && (i - start >= LINES_PER_REQUEST || characters > CHARACTERS_PER_REQUEST)) {
      yield [start, i];
      [start, characters] = [i, lines[i].length];
    }
  }
  yield [start, lines.length];
}

function words(text) {
  return text.split(/\s+/).filter((word) => word);
}

function show(i) {
  const row = rows[i];
  const paragraph = element("p", row && row.error ? row.error : undefined);
  if (row && row.error) paragraph.className = "error";
  if (row && row.warnings) paragraph.title = row.warnings.join("; ");
  let j = 0;
  for (const part of row && !row.error ? row.translation.split(/(\s+)/) : []) {
    if (!part.trim()) {
      paragraph.append(part);
      continue;
    }
    const number = j++;
    const made = element("span", part, { className: row.warnings ? "word warned" : "word", tabIndex: 0 });
    for (const kind of ["mouseenter", "focus"]) made.addEventListener(kind, () => point(i, number));
    paragraph.append(made);
  }
  target.children[i].replaceWith(paragraph);
  if (i === chosen) choose(i);
}

// The whole translation. Lines that failed keep their source text.
function translation() {
  return rows.map((row, i) => (row && !row.error ? row.translation : lines[i])).join("\n");
}

function offer() {
  const save = byId("save");
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([translation() + "\n"], { type: "text/plain" }));
  save.hidden = !translation().trim();
}

function point(line, number) {
  if (line !== chosen) choose(line);
  const weights = (rows[line].weights || [])[number] || [];
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
  byId("attention").replaceChildren(...(row.weights ? [heatmap(sources, words(row.translation), row.weights)] : []));
  askForAttention(line);
}

function take(line, candidate) {
  const others = rows[line].candidates.filter((other) => other !== candidate);
  const first = rows[line].candidates[0];
  const weights = candidate === first ? rows[line].weights : undefined; // the weights belong to the best candidate
  rows[line] = { ...rows[line], translation: candidate.text, candidates: [candidate, ...others], weights };
  show(line);
  offer();
}

function heatmap(sources, targets, weights) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  head.append(element("td"), ...sources.map((word) => element("th", word, { scope: "col" })));
  const body = table.createTBody();
  targets.forEach((word, i) => {
    const row = body.insertRow();
    row.append(element("th", word, { scope: "row" }));
    sources.forEach((_, j) => {
      const weight = (weights[i] || [])[j] || 0;
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
  await navigator.clipboard.writeText(translation());
  say("Copied.");
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
    const { directions } = await (await ask("v1/directions")).json();
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
