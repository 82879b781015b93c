// The attention page: unpacks the weights and draws the chosen map. It fetches nothing.
"use strict";
const MEAN = -1;          // used as the number of a head: the mean of all heads
const SMALL_MAP_PX = 44;  // the longer side of a head's small map
const LINES_PX = 180;     // width of the area with the lines between tokens
const MIN_LEVEL = 3;      // minimum opacity of a line, of 255; fainter lines are not drawn
const NAMES = {"<s>": "\u27e8start\u27e9", "<\/s>": "\u27e8end\u27e9", "<unk>": "\u27e8unknown\u27e9"};
const EXPLANATIONS = {
  cross: "Each row is a token of the translation, at the moment when the model predicts it. Each column is a token of the source sentence " +
    "that it can attend to.",
  encoder: "Each row is a token of the source sentence, as the encoder reads it. Each column is a token of the same sentence that it can " +
    "attend to.",
  decoder: "Each row is a token of the translation, at the moment when the model predicts it. Each column is an earlier token of the " +
    "translation that it can attend to.",
};

const sentences = JSON.parse(document.getElementById("data").textContent);
const chosen = {sentence: 0, kind: "cross", layer: null, head: MEAN, stretched: false, words: false};
const pointed = {query: null, key: null};
let kinds = {};       // the sentence's kinds of attention by name, as in the data, plus `bytes`, the unpacked weights
let kind = null;      // the chosen kind
let numRequests = 0;  // number of requests for a sentence; unpacking takes time, and only the last one is shown

const byId = id => document.getElementById(id);
const create = (name, ...children) => { const element = document.createElement(name); element.append(...children); return element; };
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
// Control characters are escaped, including those for the writing direction, which could make tokens look like other text.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
const visible = text => text.replace(CONTROLS, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
// A token as the page shows it, with a space instead of sentencepiece's marker for the start of a word.
const readable = token => visible(NAMES[token] ?? token.replaceAll("\u2581", " "));
// Isolates a token, so that its writing direction does not move its neighbours.
const isolate = token => "\u2068\u201c" + readable(token).trim() + "\u201d\u2069";
const cssVariable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const ink = () => cssVariable("--ink").split(" ").map(Number);
const colour = head => `hsl(${Math.round(360 * head / kind.heads)} 75% ${cssVariable("--lightness")})`;
const cellSize = () => clamp(Math.floor(640 / Math.max(kind.queries.length, kind.keys.length)), 10, 24); // pixels

async function unpack(text) {
  const packed = new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))]);
  const bytes = new Response(packed.stream().pipeThrough(new DecompressionStream("deflate")));
  return new Uint8Array(await bytes.arrayBuffer());
}

// A kind of attention for tokens or whole words. The weight of a key word is the sum over its tokens, that of a query word their mean.
function shownKind(packed) {
  if (!chosen.words) return packed;
  const {queries, keys, query_words: queryWords, key_words: keyWords} = packed;
  const join = (tokens, words) => {
    const joined = Array(words.at(-1) + 1).fill("");
    tokens.forEach((token, i) => { joined[words[i]] += token.replace(/@@$/, ""); });
    return joined;
  };
  const lengths = Array(queryWords.at(-1) + 1).fill(0), width = keyWords.at(-1) + 1, height = lengths.length;
  queryWords.forEach(word => { lengths[word] += 1; });
  const bytes = new Float32Array(packed.layers * packed.heads * height * width);
  packed.bytes.forEach((weight, i) => {
    const key = i % keys.length, query = Math.floor(i / keys.length) % queries.length;
    const map = Math.floor(i / (keys.length * queries.length));
    bytes[(map * height + queryWords[query]) * width + keyWords[key]] += weight / lengths[queryWords[query]];
  });
  return {...packed, queries: join(queries, queryWords), keys: join(keys, keyWords), bytes};
}

// The weights of a map in units of 1/255, with one row of keys per query.
function weights(layer, head) {
  const size = kind.queries.length * kind.keys.length;
  const ofHead = i => kind.bytes.subarray((layer * kind.heads + i) * size, (layer * kind.heads + i + 1) * size);
  if (head !== MEAN) return ofHead(head);
  const mean = new Float32Array(size);
  for (let i = 0; i < kind.heads; i++) ofHead(i).forEach((weight, place) => { mean[place] += weight / kind.heads; });
  return mean;
}

const heads = () => kind.heads > 1 ? [MEAN, ...Array(kind.heads).keys()] : [0];
const fullLevel = values => chosen.stretched ? values.reduce((largest, value) => Math.max(largest, value), 1) : 255;

// A map with one pixel for each weight, which sets its opacity; CSS enlarges it.
function paint(canvas, values, size) {
  const [width, height] = [kind.keys.length, kind.queries.length], [red, green, blue] = ink(), full = fullLevel(values);
  Object.assign(canvas, {width, height});
  canvas.style.width = size * width + "px";
  canvas.style.height = size * height + "px";
  const image = new ImageData(width, height);
  values.forEach((value, i) => image.data.set([red, green, blue, 255 * value / full], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function showTokens(list, labels, side) {
  list.replaceChildren(...labels.map((label, i) => {
    const item = create("li", readable(label));
    Object.assign(item, {dir: "auto", title: readable(label)});
    item.onpointerenter = item.onfocus = () => point({query: null, key: null, [side]: i});
    item.onpointerleave = item.onblur = () => point({query: null, key: null});
    return item;
  }));
}

// Each list of tokens next to the lines is one stop of the Tab key; arrow keys walk along it.
function makeWalkable(list) {
  [...list.children].forEach((item, i) => {
    item.tabIndex = i ? -1 : 0;
    item.onkeydown = event => {
      const next = {ArrowDown: item.nextSibling, ArrowUp: item.previousSibling}[event.key];
      if (next === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      next?.focus();
    };
  });
}

async function showSentence(number) {
  const request = ++numRequests, sentence = sentences[number], unpackedKinds = {};
  for (const [name, packed] of Object.entries(sentence.kinds))
    unpackedKinds[name] = {...packed, bytes: await unpack(packed.weights)};
  if (request !== numRequests) return;
  kinds = unpackedKinds;
  chosen.sentence = number;
  byId("sentence").value = number;
  byId("source").textContent = visible(sentence.source);
  byId("target").textContent = visible(sentence.target);
  document.title = `Attention: ${visible(sentence.source)}`;
  showKind(chosen.kind in kinds ? chosen.kind : Object.keys(kinds)[0]);
}

function showKind(name) {
  kind = shownKind(kinds[chosen.kind = name]);
  byId("explanation").textContent = EXPLANATIONS[name];
  byId("kinds").replaceChildren(...Object.entries(kinds).map(([other, {name: label}]) => {
    const button = create("button", label);
    button.onclick = () => showKind(other);
    button.setAttribute("aria-pressed", other === name);
    return button;
  }));
  document.documentElement.style.setProperty("--cell", cellSize() + "px");
  for (const [list, labels, side] of [["rows", kind.queries, "query"], ["lookers", kind.queries, "query"],
                                      ["columns", kind.keys, "key"], ["looked", kind.keys, "key"]])
    showTokens(byId(list), labels, side);
  makeWalkable(byId("lookers"));
  makeWalkable(byId("looked"));
  showHeads();
  choose(chosen.layer ?? kind.first, chosen.head);
}

function showHeads() {
  const size = SMALL_MAP_PX / Math.max(kind.queries.length, kind.keys.length);
  const title = create("tr", create("th"), ...heads().map(head => {
    const heading = create("th", head === MEAN ? "mean" : head + 1);
    if (head !== MEAN) heading.style.color = colour(head);
    return heading;
  }));
  const rows = [...Array(kind.layers).keys()].map(layer => create("tr", create("th", layer + 1), ...heads().map(head => {
    const canvas = create("canvas"), button = create("button", canvas);
    paint(canvas, weights(layer, head), size);
    button.onclick = () => choose(layer, head);
    button.title = named(layer, head);
    button.setAttribute("aria-label", button.title);
    button.dataset.place = [layer, head];
    return create("td", button);
  })));
  byId("heads").replaceChildren(title, ...rows);
}

const named = (layer, head) => `${kind.name}, layer ${layer + 1} of ${kind.layers}, ` +
  (head === MEAN ? `mean of ${kind.heads} heads` : `head ${head + 1} of ${kind.heads}`);

function choose(layer, head) {
  chosen.layer = clamp(layer, 0, kind.layers - 1);
  chosen.head = clamp(head, heads()[0], kind.heads - 1);
  for (const button of byId("heads").querySelectorAll("button"))
    button.setAttribute("aria-pressed", button.dataset.place === `${chosen.layer},${chosen.head}`);
  byId("name").textContent = named(chosen.layer, chosen.head);
  paint(byId("cells"), weights(chosen.layer, chosen.head), cellSize());
  point({query: null, key: null});
}

// Highlight what the mouse or the keyboard points at: a query, a key, or both (a cell).
function point(place) {
  Object.assign(pointed, place);
  const {query, key} = pointed, values = weights(chosen.layer, chosen.head), full = fullLevel(values), width = kind.keys.length;
  const shade = (list, pointedAt, other, weight) => [...byId(list).children].forEach((item, i) => {
    item.classList.toggle("at", i === pointedAt);
    const opacity = pointedAt === null && other !== null ? .6 * weight(i) / full : 0;
    item.style.backgroundColor = `rgb(${ink().join(" ")} / ${opacity})`;
  });
  for (const list of ["rows", "lookers"]) shade(list, query, key, i => values[i * width + key]);
  for (const list of ["columns", "looked"]) shade(list, key, query, i => values[query * width + i]);
  byId("cursor").hidden = query === null || key === null;
  if (!byId("cursor").hidden) {
    const size = cellSize(), weight = (values[query * width + key] / 255).toFixed(3);
    Object.assign(byId("cursor").style, {left: key * size + "px", top: query * size + "px"});
    byId("cursor").classList.toggle("far", key > width / 2);
    byId("cursor").firstChild.textContent = `${isolate(kind.queries[query])} attends to ${isolate(kind.keys[key])}: ${weight}`;
  }
  drawLines();
}

// Draw the chosen heads as lines from queries to keys. Each head's lines start slightly lower than those of the previous head.
function drawLines() {
  const size = cellSize(), ratio = window.devicePixelRatio || 1, canvas = byId("lines"), width = kind.keys.length;
  const height = size * Math.max(kind.queries.length, width), context = canvas.getContext("2d");
  Object.assign(canvas, {width: LINES_PX * ratio, height: height * ratio});
  Object.assign(canvas.style, {width: LINES_PX + "px", height: height + "px"});
  context.scale(ratio, ratio);
  context.lineWidth = 2;
  const shownHeads = chosen.head === MEAN ? heads().slice(1) : [chosen.head];
  for (const head of shownHeads) {
    const values = weights(chosen.layer, head), full = fullLevel(values);
    const shift = size * (shownHeads.length > 1 ? .25 + .5 * (head + .5) / kind.heads : .5);
    context.strokeStyle = colour(head);
    values.forEach((value, i) => {
      const query = Math.floor(i / width), key = i % width;
      if (value < MIN_LEVEL || (pointed.query ?? query) !== query || (pointed.key ?? key) !== key) return;
      context.globalAlpha = value / full;
      context.beginPath();
      context.moveTo(0, query * size + shift);
      context.lineTo(LINES_PX, key * size + shift);
      context.stroke();
    });
  }
}

function stretch(on) {
  chosen.stretched = byId("stretched").checked = on;
  redraw();
}

function joinWords(on) {
  chosen.words = byId("words").checked = on;
  showKind(chosen.kind);
}

function redraw() {
  showHeads();
  choose(chosen.layer, chosen.head);
}

const nextOf = (list, current) => list[(list.indexOf(current) + 1) % list.length];
const actions = {  // by key
  ArrowLeft: () => choose(chosen.layer, chosen.head - 1),
  ArrowRight: () => choose(chosen.layer, chosen.head + 1),
  ArrowUp: () => choose(chosen.layer - 1, chosen.head),
  ArrowDown: () => choose(chosen.layer + 1, chosen.head),
  n: () => showSentence(clamp(chosen.sentence + 1, 0, sentences.length - 1)),
  p: () => showSentence(clamp(chosen.sentence - 1, 0, sentences.length - 1)),
  k: () => showKind(nextOf(Object.keys(kinds), chosen.kind)),
  s: () => stretch(!chosen.stretched),
  w: () => joinWords(!chosen.words),
};

document.onkeydown = event => {
  const action = actions[event.key];
  if (!action || !kind || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  event.preventDefault();
  action();
};
byId("sentence").append(...sentences.map((sentence, i) => new Option(`${i + 1}. ${visible(sentence.source.slice(0, 80))}`, i)));
byId("sentence").onchange = event => showSentence(Number(event.target.value));
byId("stretched").onchange = event => stretch(event.target.checked);
byId("words").onchange = event => joinWords(event.target.checked);
byId("field").onpointermove = event => {
  const size = cellSize(), box = byId("cells").getBoundingClientRect();
  point({query: clamp(Math.floor((event.clientY - box.top) / size), 0, kind.queries.length - 1),
         key: clamp(Math.floor((event.clientX - box.left) / size), 0, kind.keys.length - 1)});
};
byId("field").onpointerleave = () => point({query: null, key: null});
matchMedia("(prefers-color-scheme: dark)").onchange = redraw;
window.onunhandledrejection = event => { byId("name").textContent = `The weights cannot be read: ${event.reason}`; };
showSentence(0);
