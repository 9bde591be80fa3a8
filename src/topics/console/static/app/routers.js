// The routers as a graph from left to right, with lag and totals on the edges.

import { get, name } from "./api.js";
import { Name, Problem, Stale, counted, href, html, number, usePoll } from "./ui.js";

async function everyRouter(signal) {
  const found = [];
  let cursor = "";
  do {
    const page = await get(`/v0/routers?details=true&page_size=1000${cursor && `&cursor=${cursor}`}`, { signal });
    found.push(...page.routers);
    cursor = page.next_cursor ?? "";
  } while (cursor && found.length < 5000);
  return found;
}

// A column per step from the sources. Edges of a cycle are followed once.
export function layout(routers) {
  const column = new Map(), into = new Map();
  for (const r of routers) { into.set(r.dest, [...(into.get(r.dest) ?? []), r.source]); }
  const place = (topic, path) => {
    if (column.has(topic)) return column.get(topic);
    if (path.has(topic)) return 0;
    path.add(topic);
    const at = Math.max(-1, ...(into.get(topic) ?? []).map((source) => place(source, path))) + 1;
    path.delete(topic);
    column.set(topic, at);
    return at;
  };
  for (const r of routers) { place(r.source, new Set()); place(r.dest, new Set()); }
  const columns = [];
  for (const [topic, at] of column) (columns[at] ??= []).push(topic);
  const row = new Map();
  columns.forEach((topics, at) => {
    const weight = (t) => { const above = (into.get(t) ?? []).map((s) => row.get(s) ?? 0); return above.length ? above.reduce((a, b) => a + b, 0) / above.length : 0; };
    topics.sort((a, b) => (at ? weight(a) - weight(b) : 0) || (a < b ? -1 : 1));
    topics.forEach((t, i) => row.set(t, i));
  });
  return { columns: columns.map((c) => c ?? []), column, row };
}

export function Routers() {
  const list = usePoll((signal) => everyRouter(signal), 3000, []);
  if (!list.value) return html`<h1>Routers</h1><${Problem} error=${list.error} />`;
  const routers = list.value;
  if (routers.length === 0) return html`<h1>Routers</h1><p class="faint">There is no router. <code>topics router put NAME --source A --dest B</code> copies every new record of A to B.</p>`;
  const { columns, column, row } = layout(routers.slice(0, 400));
  const wide = 210, gap = 120, tall = 34, step = 54;
  const x = (t) => column.get(t) * (wide + gap) + 4, y = (t) => row.get(t) * step + 4;
  const width = columns.length * (wide + gap) - gap + 8, height = Math.max(...columns.map((c) => c.length)) * step + 8;
  const short = (t) => (t.length > 26 ? t.slice(0, 24) + "…" : t);
  return html`<h1>Routers <${Stale} ...${list} /></h1>
    <div class="graph card"><svg viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="img" aria-label=${`${counted(routers.length, "router")}; the table below has the same`}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${routers.slice(0, 400).map((r) => {
        const x1 = x(r.source) + wide, y1 = y(r.source) + tall / 2, x2 = x(r.dest), y2 = y(r.dest) + tall / 2, mid = (x1 + x2) / 2;
        return html`<g class=${r.lag > 0 ? "edge behind" : "edge"}><path d=${`M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`} marker-end="url(#arrow)" /><text x=${mid} y=${(y1 + y2) / 2 - 6} text-anchor="middle">${r.lag > 0 ? `${number(r.lag)} behind` : number(r.forwarded_total)}</text></g>`;
      })}
      ${[...column.keys()].map((t) => html`<a href=${href(["topics", t])}><rect class="node" x=${x(t)} y=${y(t)} width=${wide} height=${tall} rx="6" /><text x=${x(t) + wide / 2} y=${y(t) + tall / 2 + 4} text-anchor="middle">${short(t)}</text></a>`)}
    </svg></div>
    <table class="list"><thead><tr><th scope="col">Router</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Guarantee</th><th scope="col" class="n">Copied</th><th scope="col" class="n">Behind</th></tr></thead>
    <tbody>${routers.map((r) => html`<tr><td><${Name}>${r.router}<//></td><td><a href=${href(["topics", r.source])}><${Name}>${r.source}<//></a></td><td><a href=${href(["topics", r.dest])}><${Name}>${r.dest}<//></a></td><td>${r.guarantee.replaceAll("_", " ")}</td><td class="n">${number(r.forwarded_total)}</td><td class="n">${number(r.lag)}</td></tr>`)}</tbody></table>`;
}
