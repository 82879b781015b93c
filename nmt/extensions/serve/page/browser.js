// What the other files need of the browser: elements, storage that may be forbidden, words, names of languages, files.

export const byId = (id) => document.getElementById(id);

export function element(name, content, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (content !== undefined) made.append(...[content].flat());
  return made;
}

// A value that outlives the page, or lasts as long as the page if the browser forbids storage.
export class Stored {
  constructor(name, storage) {
    this.name = `nmt.${name}`;
    this.storage = storage; // "localStorage" or "sessionStorage"
    this.isKept = true;
    this.value = null;
  }

  read() {
    try {
      const text = window[this.storage].getItem(this.name);
      if (text !== null) this.value = JSON.parse(text);
    } catch {
      this.isKept = false;
    }
    return this.value;
  }

  write(value) {
    this.value = value;
    try {
      window[this.storage].setItem(this.name, JSON.stringify(value));
    } catch {
      this.isKept = false;
    }
  }
}

const UNSPACED = /^(zh|ja|th|lo|km|my|yue)\b/; // languages without spaces between words
const MARKS = /^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu;

// The words of a text as [start, end), without the punctuation around them.
export function wordSpans(text, language) {
  if (UNSPACED.test(language) && Intl.Segmenter) {
    const segments = [...new Intl.Segmenter(language, { granularity: "word" }).segment(text)];
    return segments.filter((one) => one.isWordLike).map((one) => [one.index, one.index + one.segment.length]);
  }
  return [...text.matchAll(/\S+/g)].map((found) => {
    const bare = found[0].replace(MARKS, "") || found[0];
    const start = found.index + found[0].indexOf(bare);
    return [start, start + bare.length];
  });
}

export const spacedWords = (text) => text.split(/\s+/).filter(Boolean);

// Where the word at `start` begins for the model, which sees the marks before it as part of it.
export function prefixEnd(text, start, language) {
  return UNSPACED.test(language) ? start : text.slice(0, start).search(/\S*$/);
}

export function languageName(code) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code; // not a language code
  }
}

export function save(content, name) {
  const address = URL.createObjectURL(content);
  element("a", undefined, { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
