// What every page uses: elements, the address bar, polling, numbers as people read them.

import { h, render, Fragment } from "../vendor/preact.js";
import { useEffect, useMemo, useRef, useState, useCallback } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import { note } from "./actions.js";
import { link, onLink } from "./api.js";
import { tokens, visible } from "./json.js";

export const html = htm.bind(h);
export { render, Fragment, useEffect, useMemo, useRef, useState, useCallback };

// ---- The address bar holds the whole state: #/topics/orders?match=user-7

export function readRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function href(parts, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(kept).toString();
  return "#/" + parts.map(encodeURIComponent).join("/") + (text ? "?" + text : "");
}

export function setQuery(patch) {
  const { parts, query } = readRoute();
  history.replaceState(null, "", href(parts, { ...query, ...patch }));
  dispatchEvent(new Event("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const tell = () => setRoute(readRoute());
    addEventListener("hashchange", tell);
    return () => removeEventListener("hashchange", tell);
  }, []);
  return route;
}

// ---- Polling: stops while the tab is hidden, keeps the last answer when the server is away

export function usePoll(ask, every, inputs) {
  // `every` is milliseconds, or tells them from the last answer.
  const [answer, setAnswer] = useState({ value: null, error: null, at: null });
  const again = useRef(() => {});
  useEffect(() => {
    let timer = null, running = null, ended = false, last = null;
    async function run() {
      clearTimeout(timer);
      running?.abort();
      const mine = (running = new AbortController());
      try {
        const value = await ask(mine.signal);
        if (!ended && mine === running) { last = value; setAnswer({ value, error: null, at: Date.now() }); }
      } catch (error) {
        if (ended || error.name === "AbortError") return;
        setAnswer((was) => ({ ...was, error }));
      }
      const wait = typeof every === "function" ? every(last) : every;
      if (!ended && wait && !document.hidden) timer = setTimeout(run, wait);
    }
    const seen = () => { if (!document.hidden) run(); else clearTimeout(timer); };
    again.current = run;
    document.addEventListener("visibilitychange", seen);
    setAnswer({ value: null, error: null, at: null });
    if (!document.hidden) run();
    return () => { ended = true; clearTimeout(timer); running?.abort(); document.removeEventListener("visibilitychange", seen); };
  }, inputs);
  return { ...answer, again: () => again.current() };
}

export function useLink() {
  const [, redraw] = useState(0);
  useEffect(() => onLink(() => redraw((n) => n + 1)), []);
  return link;
}

// ---- Numbers, times, sizes

const GROUPED = new Intl.NumberFormat("en-GB");
export const number = (n) => (n === null || n === undefined ? "–" : typeof n === "number" ? GROUPED.format(n) : String(n));
export const counted = (n, word, many = word + "s") => `${number(n)} ${n === 1 ? word : many}`;
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 1000 && at < units.length - 1) { bytes /= 1000; at++; }
  return `${at && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined || !isFinite(perSecond)) return "–";
  if (perSecond >= 1000) return `${(perSecond / 1000).toFixed(1)} k/s`;
  return `${perSecond >= 10 || perSecond === 0 ? Math.round(perSecond) : perSecond.toFixed(1)}/s`;
}
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}
const two = (n, width = 2) => String(n).padStart(width, "0");
export function moment(ms) {
  if (!ms) return "–";
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${two(d.getMilliseconds(), 3)}`;
}
export const ago = (ms) => (ms ? `${span(Math.max(0, (Date.now() - ms) / 1000))} ago` : "never");
export const When = ({ ms }) => html`<time datetime=${ms ? new Date(ms).toISOString() : undefined} title=${ms ? new Date(ms).toISOString() : ""}>${moment(ms)}</time>`;

// ---- Pictures. Each has a table behind it for screen readers.

export function Sparkline({ points, label, unit = "/s" }) {
  const known = (points ?? []).filter((p) => p !== null);
  if (known.length < 2) return html`<span class="faint">–</span>`;
  const top = Math.max(...known, 1e-9), w = 96, tall = 22;
  const step = w / (points.length - 1);
  let path = "", pen = "M";
  points.forEach((p, i) => {
    if (p === null) { pen = "M"; return; }
    path += `${pen}${(i * step).toFixed(1)} ${(tall - 2 - (p / top) * (tall - 4)).toFixed(1)}`;
    pen = "L";
  });
  const last = known[known.length - 1];
  return html`<svg class="spark" viewBox="0 0 ${w} ${tall}" width=${w} height=${tall} role="img" aria-label=${`${label}: now ${rate(last)}, at most ${rate(top)}`}><path d=${path} /></svg>`;
}

export function Chart({ title, times, lines, format = number, least = 1 }) {
  // lines: [{name, points}], points parallel to `times` (ms); null is "not known".
  const [at, setAt] = useState(null);
  const w = innerWidth < 640 ? 350 : 640, tall = 170, left = 56, bottom = 22, room = w - left - 8, rise = tall - bottom - 8;
  const known = lines.flatMap((l) => l.points.filter((p) => p !== null));
  if (times.length < 2 || known.length === 0) return html`<figure class="chart"><figcaption>${title}</figcaption><p class="faint">Not enough samples yet.</p></figure>`;
  const top = Math.max(...known, least);
  const x = (i) => left + (i / (times.length - 1)) * room;
  const y = (p) => 8 + rise - (p / top) * rise;
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * w - left) / room;
    setAt(Math.max(0, Math.min(times.length - 1, Math.round(share * (times.length - 1)))));
  };
  const keys = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); setAt((was) => Math.max(0, Math.min(times.length - 1, (was ?? times.length - 1) + by))); }
  };
  const clock = (ms) => { const d = new Date(ms); return `${two(d.getHours())}:${two(d.getMinutes())}`; };
  const draw = (points) => {
    let path = "", pen = "M";
    points.forEach((p, i) => { if (p === null) pen = "M"; else { path += `${pen}${x(i).toFixed(1)} ${y(p).toFixed(1)}`; pen = "L"; } });
    return path;
  };
  const said = at === null ? "" : `${moment(times[at])}: ` + lines.map((l) => `${l.name} ${l.points[at] === null ? "not known" : format(l.points[at])}`).join(", ");
  return html`<figure class="chart">
    <figcaption>${title} <span class="faint" aria-live="polite">${said}</span></figcaption>
    <svg viewBox="0 0 ${w} ${tall}" tabindex="0" role="img" aria-label=${`${title}. Arrow keys read single values.`} onPointerMove=${move} onPointerLeave=${() => setAt(null)} onKeyDown=${keys}>
      ${[0, 0.5, 1].map((s) => html`<g><line class="grid" x1=${left} x2=${w - 8} y1=${y(top * s)} y2=${y(top * s)} /><text x=${left - 6} y=${y(top * s) + 4} text-anchor="end">${format(top * s)}</text></g>`)}
      ${(times.length < 8 ? [0, 1] : [0, 0.5, 1]).map((s) => { const i = Math.round(s * (times.length - 1)); return html`<text x=${x(i)} y=${tall - 6} text-anchor=${s === 0 ? "start" : s === 1 ? "end" : "middle"}>${clock(times[i])}</text>`; })}
      ${lines.map((l, i) => html`<path class=${`line c${i % 6}`} d=${draw(l.points)} />`)}
      ${at !== null && html`<line class="now" x1=${x(at)} x2=${x(at)} y1="8" y2=${8 + rise} />`}
    </svg>
    ${lines.length > 1 && html`<ul class="legend">${lines.map((l, i) => html`<li><i class=${`dot c${i % 6}`}></i>${l.name}</li>`)}</ul>`}
    <div class="unseen"><table><caption>${title}</caption><thead><tr><th>time</th>${lines.map((l) => html`<th>${l.name}</th>`)}</tr></thead>
      <tbody>${times.map((t, i) => (i % Math.ceil(times.length / 24) ? null : html`<tr><td>${moment(t)}</td>${lines.map((l) => html`<td>${l.points[i] === null ? "" : format(l.points[i])}</td>`)}</tr>`))}</tbody></table></div>
  </figure>`;
}

export function StackedBar({ parts, label }) {
  // parts: [{name, value, kind}]; drawn to scale, and small parts stay visible.
  const shown = parts.filter((p) => p.value > 0), total = shown.reduce((sum, p) => sum + p.value, 0);
  return html`<div class="stack">
    <svg viewBox="0 0 1000 28" preserveAspectRatio="none" role="img" aria-label=${label ?? parts.map((p) => `${p.name} ${number(p.value)}`).join(", ")}>
      ${total === 0 && html`<rect class="k-none" width="1000" height="28" />`}
      ${(() => { let from = 0; const least = 8; const spare = 1000 - least * shown.length; return shown.map((p) => { const wide = least + (p.value / total) * spare; const made = html`<rect class=${"k-" + p.kind} x=${from} width=${wide} height="28" />`; from += wide; return made; }); })()}
    </svg>
    <ul class="legend">${parts.map((p) => html`<li class=${p.value ? "" : "faint"}><i class=${"dot k-" + p.kind}></i>${p.name} <b>${number(p.value)}</b></li>`)}</ul>
  </div>`;
}

// ---- Pieces of pages

export const Json = ({ raw }) => {
  const { list } = useMemo(() => tokens(raw.text), [raw.text]);
  return html`<pre class="json">${list.map(([kind, text]) => (kind === "mark" ? text : html`<span class=${"j-" + kind}>${text}</span>`))}</pre>`;
};

export const Name = ({ children }) => html`<bdi>${visible(String(children))}</bdi>`;

// A page that came by plain HTTP from another machine has no `navigator.clipboard`: there the older way copies.
async function toClipboard(text) {
  try { if (navigator.clipboard) { await navigator.clipboard.writeText(text); return true; } } catch { /* the older way may still do */ }
  let done = false;
  const give = (event) => { event.preventDefault(); event.clipboardData.setData("text/plain", text); done = true; };
  document.addEventListener("copy", give);
  document.execCommand("copy");
  document.removeEventListener("copy", give);
  return done;
}

export function Copy({ text, what = "Copy" }) {
  const [said, setSaid] = useState(null);
  const copy = async () => {
    setSaid(await toClipboard(text) ? "Copied" : "Cannot copy: select the text");
    setTimeout(() => setSaid(null), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${said ?? what}</button>`;
}

export function Problem({ error }) {
  if (!error) return null;
  const hint = error.status === 401 ? "Give a key at the top right." : error.status === 403 ? "Your key may not do this." : "";
  return html`<p class="problem" role="alert">${visible(error.message)} ${hint}</p>`;
}

export function Ask({ title, children, action, danger, command, onYes, onNo }) {
  // Everything that changes data asks first, and shows the command that does the same.
  const dialog = useRef(null);
  const stopper = useRef(null), [progress, setProgress] = useState(null);
  const [error, setError] = useState(null), [busy, setBusy] = useState(false);
  useEffect(() => { dialog.current.showModal(); }, []);
  const cancel = () => { if (busy && progress) stopper.current?.abort(); else onNo(); };
  const yes = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const stop = (stopper.current = new AbortController());
    try {
      await onYes((done, all) => setProgress({ done, all }), stop.signal);
      note(title, command, stop.signal.aborted ? "stopped" : "done");
    } catch (failed) {
      if (failed.name !== "AbortError") { note(title, command, failed.message); setError(failed); }
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${onNo} aria-label=${title}><form onSubmit=${yes}>
    <h2>${title}</h2>${children}
    ${command && html`<p class="command"><span class="faint">The same as a command:</span><code>${command}</code> <${Copy} text=${command} /></p>`}
    <${Problem} error=${error} />
    ${progress && html`<p role="status"><progress max=${progress.all} value=${progress.done}></progress> ${number(progress.done)} of ${number(progress.all)}</p>`}
    <p class="buttons"><button type="button" onClick=${cancel}>${busy && progress ? "Stop" : "Cancel"}</button><button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy}>${busy ? "Working…" : action}</button></p>
  </form></dialog>`;
}

export function Stale({ at, error }) {
  if (!error || error.status) return null;
  return html`<span class="badge warn" title=${String(error.message)}>${at ? `as of ${moment(at).slice(11, 19)}` : "not loaded"}</span>`;
}

// Rows of a long list: only those near the view are drawn, the others are room above and below.
export function useWindow(count, tall, over = 12) {
  const [range, setRange] = useState([0, 60]), body = useRef(null);
  const look = useCallback(() => {
    if (!body.current) return;
    const top = -body.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / tall) - over), last = Math.ceil((top + innerHeight) / tall) + over;
    setRange((was) => (Math.abs(was[0] - first) < over / 2 && Math.abs(was[1] - last) < over / 2 ? was : [first, last]));
  }, [tall]);
  useEffect(() => {
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => { removeEventListener("scroll", look); removeEventListener("resize", look); };
  }, [look, count]);
  const first = Math.min(range[0], Math.max(0, count - 1)), last = Math.min(count, Math.max(range[1], first + 20));
  return { body, first, last, above: first * tall, below: Math.max(0, count - last) * tall };
}

// A word for the shell. Control characters and direction marks become bytes of `$'…'`: they are seen, and do nothing when they are pasted.
const bytes = (text) => [...new TextEncoder().encode(text)].map((b) => "\\x" + b.toString(16).padStart(2, "0")).join("");
const plain = (text) => `'${text.replace(/'/g, `'\\''`)}'`;
const escaped = (text) => `$'${[...text].map((c) => (visible(c) === c ? c.replace(/[\\']/, "\\$&") : bytes(c))).join("")}'`;
export const quote = (text) => (/^[\w./:@%+=-]+$/.test(text) ? text : visible(text) === text ? plain(text) : escaped(text));
