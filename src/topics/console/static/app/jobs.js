// Jobs of a queue: which worker holds which, and what died of what.

import { get, name, post } from "./api.js";
import { preview, visible } from "./json.js";
import { Ask, Json, Name, Problem, Stale, When, ago, counted, html, moment, number, quote, setQuery, span, useMemo, usePoll, useState } from "./ui.js";

export function Held({ topic, state }) {
  const jobs = usePoll((signal) => get(`/v0/topics/${name(topic)}/jobs?limit=200`, { signal }), 2000, [topic]);
  if (!jobs.value) return html`<${Problem} error=${jobs.error} />`;
  const rows = jobs.value.jobs;
  return html`<section class="card"><h2>Jobs <${Stale} ...${jobs} /></h2>
    ${rows.length === 0 ? html`<p class="faint">No job is waiting or held.</p>` : html`<table class="list"><thead><tr><th scope="col" class="n">Seq</th><th scope="col">State</th><th scope="col">Worker</th><th scope="col">Held since</th><th scope="col">Until</th><th scope="col" class="n">Deliveries</th><th scope="col">Data</th></tr></thead>
      <tbody>${rows.map((j) => html`<tr><td class="n">${number(j.seq)}</td><td><span class=${"badge s-" + j.state}>${j.state}</span></td><td>${j.node ? html`<${Name}>${j.node}<//>` : "–"}</td><td>${j.claimed_ts ? ago(j.claimed_ts) : "–"}</td><td>${j.deadline_ts ? html`<${When} ms=${j.deadline_ts} />` : "–"}</td><td class="n">${number(j.deliveries)}</td><td><code>${j.data ? preview(j.data, 80) : ""}</code></td></tr>`)}</tbody></table>`}
    ${jobs.value.more && html`<p class="faint">The first ${rows.length} are shown.</p>`}
  </section>`;
}

const read = (raw) => { try { return JSON.parse(raw.text); } catch { return {}; } };

export function DeadLetters({ topic, state, query, may }) {
  const from = state.config.dead_letter, wanted = query.cause ?? "";
  const letters = usePoll((signal) => (from ? get(`/v0/topics/${name(from)}/records?order=desc&limit=1000&include_tags=true`, { signal }) : Promise.resolve({ records: [] })), 5000, [from]);
  const [open, setOpen] = useState(null), [doing, setDoing] = useState(null), [picked, setPicked] = useState(new Set());
  const rows = useMemo(() => (letters.value?.records ?? []).map((r) => ({ ...r, note: r.meta ? read(r.meta) : {} })).filter((r) => r.note.$dead_letter_from === topic).map((r) => ({ ...r, cause: causeOf(r.note) })), [letters.value, topic]);
  if (!from) return html`<section class="card"><p>This queue has no dead-letter topic, so jobs are tried for ever. Set <code>dead_letter</code> and <code>max_deliveries</code> under Settings.</p></section>`;
  if (!letters.value) return html`<${Problem} error=${letters.error} />`;
  const shown = rows.filter((r) => !wanted || r.cause.toLowerCase().includes(wanted.toLowerCase()) || (r.$tag ?? "").includes(wanted));
  const chosen = picked.size ? shown.filter((r) => picked.has(r.$seq)) : shown;
  const seqs = chosen.map((r) => r.$seq);
  const toggle = (seq) => { const next = new Set(picked); if (!next.delete(seq)) next.add(seq); setPicked(next); };
  const what = picked.size ? counted(chosen.length, "selected job") : wanted ? `${counted(chosen.length, "job")} that match “${wanted}”` : `all ${counted(chosen.length, "job")}`;
  return html`<section class="card"><h2>Dead letters <${Stale} ...${letters} /></h2>
    <div class="bar"><label>Cause or tag contains <input type="search" value=${wanted} onInput=${(e) => setQuery({ cause: e.target.value })} /></label>
      <span class="faint" role="status">${number(shown.length)} of ${number(rows.length)}</span><span class="grow"></span>
      ${may("write") && may("delete") && chosen.length > 0 && html`<button type="button" class="primary" onClick=${() => setDoing("retry")}>Retry ${what}…</button>`}
      ${may("delete") && chosen.length > 0 && html`<button type="button" class="danger" onClick=${() => setDoing("delete")}>Delete ${what}…</button>`}</div>
    ${shown.length === 0 ? html`<p class="faint">${rows.length ? "No dead letter matches." : "No job of this queue died."}</p>` : html`<table class="list"><thead><tr><th scope="col"><span class="unseen">Select</span></th><th scope="col" class="n">Letter</th><th scope="col">Died</th><th scope="col">Cause</th><th scope="col" class="n">Deliveries</th><th scope="col">Data</th></tr></thead>
      <tbody>${shown.map((r) => html`<tr key=${r.$seq}><td><input type="checkbox" aria-label=${`letter ${r.$seq}`} checked=${picked.has(r.$seq)} onChange=${() => toggle(r.$seq)} /></td><td class="n"><button type="button" class="plain" aria-expanded=${open === r.$seq} onClick=${() => setOpen(open === r.$seq ? null : r.$seq)}>${number(r.$seq)}</button></td><td>${ago(r.$ts)}</td><td>${visible(r.cause)}</td><td class="n">${number(r.note.$dead_letter_deliveries)}</td><td><code>${preview(r.data, 80)}</code>${open === r.$seq && html`<${Json} raw=${r.data} /><${Json} raw=${r.meta} />`}</td></tr>`)}</tbody></table>`}
    ${doing === "retry" && html`<${Ask} title="Retry dead letters" action="Retry" command=${`topics queue redrive ${quote(topic)} --seqs ${seqs.slice(0, 20).join(",")}${seqs.length > 20 ? ",…" : ""}`} onNo=${() => setDoing(null)} onYes=${async () => { await retry(topic, from, seqs); setDoing(null); setPicked(new Set()); letters.again(); }}><p>${what} go back to <b>${topic}</b> with a fresh count of deliveries, and leave <b>${from}</b>. Others stay.</p><//>`}
    ${doing === "delete" && html`<${Ask} title="Delete dead letters" action="Delete for good" danger=${true} command=${`topics delete ${quote(from)} --seqs ${seqs.slice(0, 20).join(",")}${seqs.length > 20 ? ",…" : ""}`} onNo=${() => setDoing(null)} onYes=${async () => { await remove(from, seqs); setDoing(null); setPicked(new Set()); letters.again(); }}><p>${what} are removed from <b>${from}</b> for good.</p><//>`}
  </section>`;
}

// Paced: a hundred at a time, so that workers and other clients are served in between.
async function retry(topic, from, seqs) {
  for (let at = 0; at < seqs.length; at += 100) await post(`/v0/topics/${name(topic)}/redrive`, { from, seqs: seqs.slice(at, at + 100), max: 100 });
}
async function remove(from, seqs) {
  for (let at = 0; at < seqs.length; at += 1000) await post(`/v0/topics/${name(from)}/delete`, { seqs: seqs.slice(at, at + 1000) });
}

function causeOf(note) {
  return [note.$dead_letter_error_type, note.$dead_letter_error].filter(Boolean).join(": ") || "no cause was given";
}
