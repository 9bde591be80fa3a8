// JSON as the server sent it: numbers keep their spelling, repeated keys stay, nothing is rounded.
//
// `parse` makes ordinary values, except that `data` and `meta` become `Raw` (the text itself) and
// an integer beyond 2^53 becomes `Raw` too. `tokens` cuts the text of a `Raw` for pretty printing.

export class Raw {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}

const KEPT = new Set(["data", "meta"]);
const SCALAR = /-?[0-9][0-9.eE+-]*|true|false|null/y;

function stringEnd(text, at) {
  // Behind the closing quote of the string that begins at `at`. Not a regular expression: a string
  // of a megabyte would take more stack than a browser gives to one.
  for (let end = text.indexOf('"', at + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before--;
    if ((end - before) % 2 === 0) return end + 1;
  }
  throw new SyntaxError(`a string without an end at ${at}`);
}

function skipTo(text, at) {
  // The end of the value that begins at `at`. Containers are counted, strings are passed over.
  let depth = 0;
  for (;;) {
    const c = text[at];
    if (c === '"') at = stringEnd(text, at);
    else if (c === "{" || c === "[") { depth++; at++; }
    else if (c === "}" || c === "]") { depth--; at++; }
    else if (c === "," || c === ":") at++;
    else { SCALAR.lastIndex = at; if (!SCALAR.exec(text)) throw new SyntaxError(`not JSON at ${at}`); at = SCALAR.lastIndex; }
    if (depth === 0) return at;
  }
}

export function parse(text) {
  // The server sends compact JSON: no white space outside strings.
  let at = 0;
  function string() {
    const end = stringEnd(text, at);
    const made = JSON.parse(text.slice(at, end));
    at = end;
    return made;
  }
  function value() {
    const c = text[at];
    if (c === "{") {
      const made = {};
      at++;
      if (text[at] === "}") { at++; return made; }
      for (;;) {
        const key = string();
        at++; // the colon
        if (KEPT.has(key)) { const end = skipTo(text, at); made[key] = new Raw(text.slice(at, end)); at = end; }
        else Object.defineProperty(made, key, { value: value(), enumerable: true, writable: true, configurable: true });
        if (text[at++] === "}") return made;
      }
    }
    if (c === "[") {
      const made = [];
      at++;
      if (text[at] === "]") { at++; return made; }
      for (;;) { made.push(value()); if (text[at++] === "]") return made; }
    }
    if (c === '"') return string();
    SCALAR.lastIndex = at;
    const found = SCALAR.exec(text);
    if (!found) throw new SyntaxError(`not JSON at ${at}`);
    at = SCALAR.lastIndex;
    const made = JSON.parse(found[0]);
    return typeof made === "number" && Number.isInteger(made) && !Number.isSafeInteger(made) ? new Raw(found[0]) : made;
  }
  return value();
}

// Control characters, direction marks and lone halves of pairs are shown as escapes, so that text
// in a record cannot rearrange the page or hide itself.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export function visible(text) {
  return text.replace(UNSEEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// Pretty printing: [[kind, text], …] where kind is one of key, string, number, word, mark.
// Stops after `most` tokens or characters, so that a record of a megabyte does not stop the page.
export function tokens(text, most = 20000) {
  const made = [];
  let depth = 0, at = 0, size = 0, expectsKey = [];
  const pad = () => "\n" + "  ".repeat(Math.min(depth, 40));
  const put = (kind, what) => { made.push([kind, what]); size += what.length; };
  while (at < text.length) {
    if (size > most) { put("mark", ` … ${text.length - at} more characters`); return { list: made, cut: true }; }
    const c = text[at];
    if (c === '"') {
      const end = stringEnd(text, at);
      const isKey = text[end] === ":" && expectsKey[expectsKey.length - 1];
      let raw = text.slice(at, end);
      if (raw.length > most) raw = raw.slice(0, most) + `… (${raw.length} characters)`;
      put(isKey ? "key" : "string", visible(raw));
      at = end;
    } else if (c === "{" || c === "[") {
      const close = c === "{" ? "}" : "]";
      if (text[at + 1] === close) { put("mark", c + close); at += 2; continue; }
      depth++;
      expectsKey.push(c === "{");
      put("mark", c + pad());
      at++;
    } else if (c === "}" || c === "]") {
      depth--;
      expectsKey.pop();
      put("mark", pad() + c);
      at++;
    } else if (c === ",") { put("mark", "," + pad()); at++; }
    else if (c === ":") { put("mark", ": "); at++; }
    else {
      SCALAR.lastIndex = at;
      if (!SCALAR.exec(text)) { put("mark", visible(c)); at++; continue; }
      const word = text.slice(at, SCALAR.lastIndex);
      put(/^[tfn]/.test(word) ? "word" : "number", word);
      at = SCALAR.lastIndex;
    }
  }
  return { list: made, cut: false };
}

export function preview(raw, most = 180) {
  const text = visible(raw.text.slice(0, most * 2));
  return text.length > most || raw.text.length > most * 2 ? text.slice(0, most) + "…" : text;
}
