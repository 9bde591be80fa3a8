// Named cursors of a topic: who reads, and how far behind.

import { get, name } from "./api.js";
import { Chart, Name, Problem, Stale, ago, html, number, span, usePoll } from "./ui.js";

export function Consumers({ topic }) {
  const cursors = usePoll((signal) => get(`/v0/topics/${name(topic)}/cursors?page_size=1000`, { signal }), 2000, [topic]);
  const history = usePoll((signal) => get(`/v0/history?topic=${name(topic)}`, { signal }), 10000, [topic]);
  if (!cursors.value) return html`<${Problem} error=${cursors.error} />`;
  const rows = cursors.value.cursors, past = history.value;
  const lines = Object.entries(past?.cursors ?? {}).map(([cursor, points]) => ({ name: cursor, points }));
  const seconds = Object.entries(past?.cursor_seconds ?? {}).map(([cursor, points]) => ({ name: cursor, points }));
  return html`
    ${lines.length > 0 && html`<div class="charts"><${Chart} title="Records behind" times=${past.times} lines=${lines} /><${Chart} title="Time behind" times=${past.times} lines=${seconds} format=${span} least=${0.01} /></div>`}
    <section class="card"><h2>Cursors <${Stale} ...${cursors} /></h2>
    ${rows.length === 0 ? html`<p class="faint">No consumer keeps its position here. A consumer does so with <code>PUT /v0/topics/${topic}/cursors/NAME</code>, in Python with <code>log.consumer</code>.</p>` : html`<div class="scroll"><table class="list">
      <thead><tr><th scope="col">Consumer</th><th scope="col" class="n">Records behind</th><th scope="col" class="n">Time behind</th><th scope="col" class="n">Last seq read</th><th scope="col">Moved</th><th scope="col"></th></tr></thead>
      <tbody>${rows.map((c) => html`<tr><td><${Name}>${c.cursor}<//>${c.cursor.startsWith("flow.") && html` <span class="badge">Spark flow</span>`}</td><td class="n">${number(c.lag_records)}</td><td class="n">${span(c.lag_seconds)}</td><td class="n">${number(c.seq)}</td><td>${ago(c.updated_ts)}</td><td>${c.gap_pending && html`<span class="badge warn">records were lost before it read them</span>`}</td></tr>`)}</tbody></table></div>`}
    </section>`;
}
