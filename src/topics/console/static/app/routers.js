// What feeds what, from left to right: routers, staging apps (Spark queries write through them) and
// consumers (Spark queries and flows leave their position as a cursor).

import { get, getHistory } from "./api.js";
import { visible } from "./json.js";
import { Name, Problem, Stale, counted, href, html, number, rate, span, usePoll, useRef } from "./ui.js";

const MOST_EDGES = 400;

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
export function layout(edges) {
  const column = new Map(), into = new Map();
  for (const e of edges) into.set(e.dest, [...(into.get(e.dest) ?? []), e.source]);
  const place = (node, path) => {
    if (column.has(node)) return column.get(node);
    if (path.has(node)) return -1;
    path.add(node);
    const at = Math.max(-1, ...(into.get(node) ?? []).map((source) => place(source, path))) + 1;
    path.delete(node);
    column.set(node, at);
    return at;
  };
  for (const e of edges) { place(e.source, new Set()); place(e.dest, new Set()); }
  const columns = [];
  for (const [node, at] of column) (columns[at] ??= []).push(node);
  const row = new Map();
  columns.forEach((nodes, at) => {
    const weight = (t) => { const above = (into.get(t) ?? []).map((s) => row.get(s) ?? 0); return above.length ? above.reduce((a, b) => a + b, 0) / above.length : 0; };
    nodes.sort((a, b) => (at ? weight(a) - weight(b) : 0) || (a < b ? -1 : 1));
    nodes.forEach((t, i) => row.set(t, i));
  });
  return { columns: columns.map((c) => c ?? []), column, row };
}

// Nodes are named "t topic" and "q query". A flow is one node, whether it reads or writes.
const queryOf = (text) => "q " + text.replace(/^flow\./, "");
export function edgesOf(routers, past) {
  const found = routers.map((r) => ({ kind: "router", id: r.router, source: "t " + r.source, dest: "t " + r.dest, lag: r.lag, rate: r.rate, total: r.forwarded_total }));
  for (const c of past?.consumers ?? []) found.push({ kind: "consumer", id: c.cursor, source: "t " + c.topic, dest: queryOf(c.cursor), lag: c.lag_records, seconds: c.lag_seconds });
  for (const a of past?.apps ?? []) for (const topic of a.topics) found.push({ kind: "app", id: a.app, source: queryOf(a.app), dest: "t " + topic, epoch: a.epoch });
  return found;
}

const said = (e) => (e.kind === "app" ? `epoch ${number(e.epoch)}` : e.lag > 0 ? `${number(e.lag)} behind${e.seconds ? `, ${span(e.seconds)}` : ""}` : e.kind === "router" ? rate(e.rate ?? 0) : "up to date");

export function Routers() {
  const was = useRef(null);
  const list = usePoll(async (signal) => {
    const routers = await everyRouter(signal), at = performance.now(), before = was.current;
    for (const r of routers) {
      const known = before?.totals.get(r.router);
      r.rate = known === undefined ? null : (1000 * Math.max(0, r.forwarded_total - known)) / (at - before.at);
    }
    was.current = { at, totals: new Map(routers.map((r) => [r.router, r.forwarded_total])) };
    return routers;
  }, 3000, []);
  const history = usePoll(getHistory, 5000, []);
  if (!list.value) return html`<h1>Routers</h1><${Problem} error=${list.error} />`;
  const routers = list.value, edges = edgesOf(routers, history.value);
  if (edges.length === 0) return html`<h1>Routers</h1><section class="card"><p class="faint">There is no router, no consumer with a position and no Spark query that writes. <code>topics router put NAME --source A --dest B</code> copies every new record of A to B.</p></section>`;
  const drawn = edges.slice(0, MOST_EDGES), { columns, column, row } = layout(drawn);
  const wide = 190, gap = 190, tall = 34, step = 56;
  const x = (t) => column.get(t) * (wide + gap) + 4, y = (t) => row.get(t) * step + 14;
  const width = columns.length * (wide + gap) - gap + 8, height = Math.max(...columns.map((c) => c.length)) * step + 12;
  const short = (t) => (t.length > 24 ? t.slice(0, 22) + "…" : t);
  const others = edges.filter((e) => e.kind !== "router");
  return html`<h1>Routers <${Stale} ...${list} /></h1>
    <ul class="legend"><li><i class="dot k-topic"></i>topic</li><li><i class="dot k-query"></i>consumer, flow or Spark query</li></ul>
    <div class="graph card"><svg viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="img" aria-label=${`${counted(routers.length, "router")} and ${counted(others.length, "other edge")}; the tables below have the same`}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${drawn.map((e) => {
        const x1 = x(e.source) + wide, y1 = y(e.source) + tall / 2, x2 = x(e.dest), y2 = y(e.dest) + tall / 2, mid = (x1 + x2) / 2;
        return html`<g class=${`edge ${e.kind}${e.lag > 0 ? " behind" : ""}`}><path d=${`M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`} marker-end="url(#arrow)" /><text x=${x2 - 12} y=${y2 - 7} text-anchor="end">${said(e)}</text></g>`;
      })}
      ${[...column.keys()].map((t) => { const title = visible(t.slice(2)), box = html`<rect class=${"node " + t[0]} x=${x(t)} y=${y(t)} width=${wide} height=${tall} rx=${t[0] === "t" ? 6 : 17} /><text x=${x(t) + wide / 2} y=${y(t) + tall / 2 + 4} text-anchor="middle">${short(title)}<title>${title}</title></text>`; return t[0] === "t" ? html`<a href=${href(["topics", t.slice(2)])} aria-label=${`topic ${title}`}>${box}</a>` : html`<g>${box}</g>`; })}
    </svg></div>
    ${edges.length > MOST_EDGES && html`<p class="faint">The first ${MOST_EDGES} of ${number(edges.length)} edges are drawn.</p>`}
    ${routers.length > 0 && html`<section class="card"><h2>Routers</h2><div class="scroll"><table class="list"><thead><tr><th scope="col">Router</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Guarantee</th><th scope="col" class="n">Copied</th><th scope="col" class="n">Rate</th><th scope="col" class="n">Behind</th></tr></thead>
    <tbody>${routers.slice(0, MOST_EDGES).map((r) => html`<tr><td class="name"><${Name}>${r.router}<//></td><td class="name"><a href=${href(["topics", r.source])}><${Name}>${r.source}<//></a></td><td class="name"><a href=${href(["topics", r.dest])}><${Name}>${r.dest}<//></a></td><td>${r.guarantee.replaceAll("_", " ")}</td><td class="n">${number(r.forwarded_total)}</td><td class="n">${rate(r.rate)}</td><td class="n">${number(r.lag)}</td></tr>`)}</tbody></table></div></section>`}
    ${others.length > 0 && html`<section class="card"><h2>Consumers, flows and Spark queries</h2><div class="scroll"><table class="list"><thead><tr><th scope="col">Name</th><th scope="col">Does</th><th scope="col">Topic</th><th scope="col" class="n">Records behind</th><th scope="col" class="n">Time behind</th></tr></thead>
    <tbody>${others.slice(0, MOST_EDGES).map((e) => { const topic = (e.kind === "app" ? e.dest : e.source).slice(2); return html`<tr><td class="name"><${Name}>${e.id}<//></td><td>${e.kind === "app" ? `writes, epoch ${number(e.epoch)}` : "reads"}</td><td class="name"><a href=${href(["topics", topic], { tab: "consumers" })}><${Name}>${topic}<//></a></td><td class="n">${e.kind === "app" ? "–" : number(e.lag)}</td><td class="n">${e.kind === "app" ? "–" : span(e.seconds)}</td></tr>`; })}</tbody></table></div></section>`}`;
}
