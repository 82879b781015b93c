"use strict";
const MEAN = -1;   // instead of a head: the mean of all
const THUMB = 44;  // pixels of a head's small map, its longer side
const LINKS = 180; // pixels between the tokens that lines join
const FAINT = 3;   // of 255: lighter lines are not drawn

const sentences = JSON.parse(document.getElementById("data").textContent);
const chosen = {sentence: 0, kind: "cross", layer: null, head: MEAN, stretched: false};
const pointed = {query: null, key: null};
let kinds = {};    // of the sentence, by name: as in the data, with `bytes`, their weights unpacked
let kind = null;   // the chosen one of them
let asked = 0;     // sentences asked for: unpacking takes its time, and the last one asked for is shown

const at = id => document.getElementById(id);
const made = (name, ...within) => { const element = document.createElement(name); element.append(...within); return element; };
const bound = (value, low, high) => Math.max(low, Math.min(high, value));
// Controls are shown as escapes, those of direction too: they would make what is read differ from what is there.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
const visible = token => token.replace(CONTROLS, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const apart = token => "\u2068" + visible(token) + "\u2069"; // a token of either direction leaves its neighbours where they are
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const ink = () => style("--ink").split(" ").map(Number);
const colour = head => `hsl(${Math.round(360 * head / kind.heads)} 75% ${style("--lightness")})`;
const cell = () => bound(Math.floor(640 / Math.max(kind.queries.length, kind.keys.length)), 10, 24); // pixels of a weight

async function unpacked(text) {
  const packed = new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))]);
  const bytes = new Response(packed.stream().pipeThrough(new DecompressionStream("deflate")));
  return new Uint8Array(await bytes.arrayBuffer());
}

// Weights in 1/255, a row of keys a query.
function weights(layer, head) {
  const size = kind.queries.length * kind.keys.length;
  const of = one => kind.bytes.subarray((layer * kind.heads + one) * size, (layer * kind.heads + one + 1) * size);
  if (head !== MEAN) return of(head);
  const mean = new Float32Array(size);
  for (let one = 0; one < kind.heads; one++) of(one).forEach((weight, i) => { mean[i] += weight / kind.heads; });
  return mean;
}

const heads = () => kind.heads > 1 ? [MEAN, ...Array(kind.heads).keys()] : [0];
const full = values => chosen.stretched ? values.reduce((most, value) => Math.max(most, value), 1) : 255;

// A map as the opacity of one pixel a weight; style makes it larger.
function paint(canvas, values, size) {
  const [width, height] = [kind.keys.length, kind.queries.length], [red, green, blue] = ink(), whole = full(values);
  Object.assign(canvas, {width, height});
  canvas.style.width = size * width + "px";
  canvas.style.height = size * height + "px";
  const image = new ImageData(width, height);
  values.forEach((value, i) => image.data.set([red, green, blue, 255 * value / whole], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function tokens(list, labels, side) {
  list.replaceChildren(...labels.map((label, i) => {
    const item = made("li", visible(label));
    Object.assign(item, {dir: "auto", title: visible(label)});
    item.onpointerenter = item.onfocus = () => point({query: null, key: null, [side]: i});
    item.onpointerleave = item.onblur = () => point({query: null, key: null});
    return item;
  }));
}

// The tokens beside the lines are one stop of the Tab key each side; arrow keys go from one to the next.
function walkable(list) {
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
  const wanted = ++asked, found = sentences[number], read = {};
  for (const [name, one] of Object.entries(found.kinds)) read[name] = {...one, bytes: await unpacked(one.weights)};
  if (wanted !== asked) return;
  kinds = read;
  chosen.sentence = number;
  at("sentence").value = number;
  at("source").textContent = visible(found.source);
  at("target").textContent = visible(found.target);
  showKind(chosen.kind in kinds ? chosen.kind : Object.keys(kinds)[0]);
}

function showKind(name) {
  kind = kinds[chosen.kind = name];
  at("kinds").replaceChildren(...Object.entries(kinds).map(([other, one]) => {
    const button = made("button", one.name);
    button.onclick = () => showKind(other);
    button.setAttribute("aria-pressed", other === name);
    return button;
  }));
  document.documentElement.style.setProperty("--cell", cell() + "px");
  for (const [list, labels, side] of [["rows", kind.queries, "query"], ["lookers", kind.queries, "query"],
                                      ["columns", kind.keys, "key"], ["looked", kind.keys, "key"]])
    tokens(at(list), labels, side);
  walkable(at("lookers"));
  walkable(at("looked"));
  showHeads();
  choose(chosen.layer ?? kind.first, chosen.head);
}

function showHeads() {
  const size = THUMB / Math.max(kind.queries.length, kind.keys.length);
  const title = made("tr", made("th"), ...heads().map(head => {
    const heading = made("th", head === MEAN ? "mean" : head + 1);
    if (head !== MEAN) heading.style.color = colour(head);
    return heading;
  }));
  const rows = [...Array(kind.layers).keys()].map(layer => made("tr", made("th", layer + 1), ...heads().map(head => {
    const canvas = made("canvas"), button = made("button", canvas);
    paint(canvas, weights(layer, head), size);
    button.onclick = () => choose(layer, head);
    button.title = named(layer, head);
    button.setAttribute("aria-label", button.title);
    button.dataset.place = [layer, head];
    return made("td", button);
  })));
  at("heads").replaceChildren(title, ...rows);
}

const named = (layer, head) => `${kind.name}, layer ${layer + 1}, ${head === MEAN ? "mean of heads" : "head " + (head + 1)}`;

function choose(layer, head) {
  chosen.layer = bound(layer, 0, kind.layers - 1);
  chosen.head = bound(head, heads()[0], kind.heads - 1);
  for (const button of at("heads").querySelectorAll("button"))
    button.setAttribute("aria-pressed", button.dataset.place === `${chosen.layer},${chosen.head}`);
  at("name").textContent = named(chosen.layer, chosen.head);
  paint(at("cells"), weights(chosen.layer, chosen.head), cell());
  point({query: null, key: null});
}

// What the mouse or the keyboard is at: a query, a key, or both (a cell).
function point(place) {
  Object.assign(pointed, place);
  const {query, key} = pointed, values = weights(chosen.layer, chosen.head), whole = full(values), width = kind.keys.length;
  const shade = (list, own, other, weight) => [...at(list).children].forEach((item, i) => {
    item.classList.toggle("at", i === own);
    const opacity = own === null && other !== null ? .6 * weight(i) / whole : 0;
    item.style.backgroundColor = `rgb(${ink().join(" ")} / ${opacity})`;
  });
  for (const list of ["rows", "lookers"]) shade(list, query, key, i => values[i * width + key]);
  for (const list of ["columns", "looked"]) shade(list, key, query, i => values[query * width + i]);
  at("cursor").hidden = query === null || key === null;
  if (!at("cursor").hidden) {
    const size = cell(), told = (values[query * width + key] / 255).toFixed(3);
    Object.assign(at("cursor").style, {left: key * size + "px", top: query * size + "px"});
    at("cursor").classList.toggle("far", key > width / 2);
    at("cursor").firstChild.textContent = `${apart(kind.queries[query])} \u2192 ${apart(kind.keys[key])}  ${told}`;
  }
  drawLines();
}

// The heads that are shown, as lines from queries to keys; those of one head a little below those of the one before.
function drawLines() {
  const size = cell(), ratio = window.devicePixelRatio || 1, canvas = at("lines"), width = kind.keys.length;
  const height = size * Math.max(kind.queries.length, width), context = canvas.getContext("2d");
  Object.assign(canvas, {width: LINKS * ratio, height: height * ratio});
  Object.assign(canvas.style, {width: LINKS + "px", height: height + "px"});
  context.scale(ratio, ratio);
  context.lineWidth = 2;
  const among = chosen.head === MEAN ? heads().slice(1) : [chosen.head];
  for (const head of among) {
    const values = weights(chosen.layer, head), whole = full(values);
    const shift = size * (among.length > 1 ? .25 + .5 * (head + .5) / kind.heads : .5);
    context.strokeStyle = colour(head);
    values.forEach((value, i) => {
      const query = Math.floor(i / width), key = i % width;
      if (value < FAINT || (pointed.query ?? query) !== query || (pointed.key ?? key) !== key) return;
      context.globalAlpha = value / whole;
      context.beginPath();
      context.moveTo(0, query * size + shift);
      context.lineTo(LINKS, key * size + shift);
      context.stroke();
    });
  }
}

function stretch(whether) {
  chosen.stretched = at("stretched").checked = whether;
  redraw();
}

function redraw() {
  showHeads();
  choose(chosen.layer, chosen.head);
}

const step = (list, now, by) => list[(list.indexOf(now) + by + list.length) % list.length];
const keys = {
  ArrowLeft: () => choose(chosen.layer, chosen.head - 1),
  ArrowRight: () => choose(chosen.layer, chosen.head + 1),
  ArrowUp: () => choose(chosen.layer - 1, chosen.head),
  ArrowDown: () => choose(chosen.layer + 1, chosen.head),
  n: () => showSentence(bound(chosen.sentence + 1, 0, sentences.length - 1)),
  p: () => showSentence(bound(chosen.sentence - 1, 0, sentences.length - 1)),
  k: () => showKind(step(Object.keys(kinds), chosen.kind, 1)),
  s: () => stretch(!chosen.stretched),
};

document.onkeydown = event => {
  const wanted = keys[event.key];
  if (!wanted || !kind || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  event.preventDefault();
  wanted();
};
at("sentence").append(...sentences.map((one, i) => new Option(`${i + 1}. ${visible(one.source.slice(0, 80))}`, i)));
at("sentence").onchange = event => showSentence(Number(event.target.value));
at("stretched").onchange = event => stretch(event.target.checked);
at("field").onpointermove = event => {
  const size = cell(), box = at("cells").getBoundingClientRect();
  point({query: bound(Math.floor((event.clientY - box.top) / size), 0, kind.queries.length - 1),
         key: bound(Math.floor((event.clientX - box.left) / size), 0, kind.keys.length - 1)});
};
at("field").onpointerleave = () => point({query: null, key: null});
matchMedia("(prefers-color-scheme: dark)").onchange = redraw;
window.onunhandledrejection = event => { at("name").textContent = `The weights cannot be unpacked: ${event.reason}`; };
showSentence(0);
