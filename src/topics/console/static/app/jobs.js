// Jobs of a queue: which worker holds which, and what died of what. Looking takes no job.

import { get, name, post } from "./api.js";
import { preview, visible } from "./json.js";
import { Ask, Copy, Json, Name, Problem, Stale, When, ago, counted, html, number, quote, setQuery, span, useEffect, useMemo, usePoll, useRef, useState } from "./ui.js";

const DRAWN = 200, MOST = 20000, PAGE = 1000;
const PACES = [["at once", 0], ["100 a second", 100], ["10 a second", 10], ["1 a second", 1]];

// Which rows an action is for: those picked; without any, all that the filter shows.
function useChoice(shown, seqOf, filter) {
  const [picked, setPicked] = useState(new Set());
  const chosen = picked.size ? shown.filter((r) => picked.has(seqOf(r))) : shown;
  const toggle = (seq) => setPicked((was) => { const next = new Set(was); if (!next.delete(seq)) next.add(seq); return next; });
  const every = () => setPicked((was) => (was.size === shown.length ? new Set() : new Set(shown.map(seqOf))));
  const clear = () => setPicked(new Set());
  useEffect(clear, [filter]);
  return { picked, chosen, toggle, every, clear };
}

// A call names at most a thousand seqs.
const perThousand = (command, seqs) => Array.from({ length: Math.ceil(seqs.length / 1000) }, (_, i) => `${command} --seqs ${seqs.slice(i * 1000, i * 1000 + 1000).join(",")}`).join("\n");

const says = (choice, wanted, thing) => (choice.picked.size ? counted(choice.chosen.length, `selected ${thing}`) : wanted ? `${counted(choice.chosen.length, thing)} that match${choice.chosen.length === 1 ? "es" : ""}` : `all ${counted(choice.chosen.length, thing)}`);

const Pick = ({ choice, seq, label }) => html`<input type="checkbox" aria-label=${label} checked=${choice.picked.has(seq)} onChange=${() => choice.toggle(seq)} />`;
const Unpick = ({ choice }) => choice.picked.size > 0 && html`<button type="button" class="quiet" onClick=${choice.clear}>Select none</button>`;
const PickAll = ({ choice, shown }) => html`<input type="checkbox" aria-label="select all that the filter shows" checked=${shown.length > 0 && choice.picked.size === shown.length} onChange=${choice.every} />`;

// `doing` keeps what the dialog tells of: rows that come or go while it is open change nothing.

export function Held({ topic, query, may }) {
  const only = query.state ?? "", wanted = query.job ?? "";
  const jobs = usePoll((signal) => get(`/v0/topics/${name(topic)}/jobs?limit=1000${only && `&state=${only}`}`, { signal }), 2000, [topic, only]);
  const [open, setOpen] = useState(null), [doing, setDoing] = useState(null);
  const rows = jobs.value?.jobs ?? [], low = wanted.toLowerCase();
  const shown = rows.filter((j) => !low || (j.node ?? "").toLowerCase().includes(low) || (j.tag ?? "").toLowerCase().includes(low) || String(j.seq) === wanted || (j.last_error?.message ?? "").toLowerCase().includes(low));
  const choice = useChoice(shown, (j) => j.seq, `${only} ${wanted}`);
  if (!jobs.value) return html`<${Problem} error=${jobs.error} />`;
  const held = choice.chosen.filter((j) => j.state === "leased");
  const what = says(choice, wanted || only, "job"), more = jobs.value.more;
  const seqs = choice.chosen.map((j) => j.seq), over = () => { setDoing(null); choice.clear(); jobs.again(); };
  return html`<section class="card"><h2>Jobs <${Stale} ...${jobs} /></h2>
    <div class="bar">
      <label>State <select value=${only} onChange=${(e) => setQuery({ state: e.target.value })}><option value="">all</option><option>leased</option><option>delayed</option><option>ready</option></select></label>
      <label>Worker, tag, seq or error <input type="search" value=${wanted} onInput=${(e) => setQuery({ job: e.target.value })} /></label>
      <span class="faint" role="status">${number(shown.length)}${more ? " of the first" : " of"} ${number(rows.length)}</span><${Unpick} choice=${choice} /><span class="grow"></span>
      ${may("write") && held.length > 0 && html`<button type="button" onClick=${() => setDoing({ act: "back", held })}>Move back ${counted(held.length, "leased job")}…</button>`}
      ${may("delete") && (choice.picked.size > 0 || wanted || only) && seqs.length > 0 && html`<button type="button" class="danger" onClick=${() => setDoing({ act: "delete", what, seqs, held })}>Delete ${what}…</button>`}
    </div>
    ${shown.length === 0 ? html`<p class="faint">${rows.length ? "No job matches." : "No job is waiting or held."}</p>` : html`<div class="scroll"><table class="list"><thead><tr><th scope="col"><${PickAll} choice=${choice} shown=${shown} /></th><th scope="col" class="n">Seq</th><th scope="col">State</th><th scope="col">Worker</th><th scope="col">Held since</th><th scope="col">Until</th><th scope="col" class="n">Deliveries</th><th scope="col">Last error</th><th scope="col">Data</th></tr></thead>
      <tbody>${shown.slice(0, DRAWN).map((j) => html`<tr key=${j.seq}><td><${Pick} choice=${choice} seq=${j.seq} label=${`job ${j.seq}`} /></td><td class="n"><button type="button" class="plain link" aria-expanded=${open === j.seq} aria-label=${`job ${j.seq}: show the data`} onClick=${() => setOpen(open === j.seq ? null : j.seq)}>${number(j.seq)}</button></td>
        <td><span class=${"badge s-" + j.state}>${j.state}</span></td><td class="name">${j.node ? html`<${Name}>${j.node}<//>` : "–"}</td><td>${j.claimed_ts ? html`<span title=${new Date(j.claimed_ts).toISOString()}>${ago(j.claimed_ts)}</span>` : "–"}</td><td>${until(j)}</td><td class="n">${number(j.deliveries)}</td><td class="name">${j.last_error ? visible(`${j.last_error.type}: ${j.last_error.message}`) : "–"}</td><td class="wide"><code>${j.data ? preview(j.data, 80) : ""}</code>${open === j.seq && html`<${Copy} text=${j.data.text} what="Copy data" /><${Json} raw=${j.data} />`}</td></tr>`)}</tbody></table></div>`}
    ${shown.length > DRAWN && html`<p class="faint">${number(shown.length - DRAWN)} more match. Actions are for all of them.</p>`}
    ${more && html`<p class="faint">The queue has more jobs than the first ${number(rows.length)}: leased ones come first, then delayed ones, then ready ones.</p>`}
    ${doing?.act === "delete" && html`<${Ask} title=${`Delete ${doing.what}`} action="Delete for good" danger=${true} command=${perThousand(`topics delete ${quote(topic)}`, doing.seqs)} onNo=${() => setDoing(null)} onYes=${async (progress, stop) => { await remove(topic, doing.seqs, progress, stop); over(); }}><p><b>${doing.what}</b> ${doing.seqs.length === 1 ? "is" : "are"} removed from <b>${topic}</b> for good. ${doing.held.length ? `${counted(doing.held.length, "of them is leased", "of them are leased")}: the worker is told when it acks.` : ""}</p><//>`}
    ${doing?.act === "back" && html`<${Ask} title=${`Move back ${counted(doing.held.length, "leased job")}`} action="Move back" command=${commandsOf(topic, doing.held)} onNo=${() => setDoing(null)} onYes=${async (progress) => { await giveBack(topic, doing.held, progress); over(); }}><p><b>${counted(doing.held.length, "job")}</b> ${doing.held.length === 1 ? "is" : "are"} taken from ${counted(new Set(doing.held.map((j) => j.node)).size, "worker")} and may be claimed again at once. A worker that still works on such a job finds out when it acks; the job may be done twice.</p><//>`}
  </section>`;
}

function until(j) {
  const at = j.deadline_ts ?? j.ready_ts;
  if (!at) return "–";
  const left = (at - Date.now()) / 1000;
  return html`<span title=${new Date(at).toISOString()}>${left > 0 ? `${j.deadline_ts ? "" : "ready "}in ${span(left)}` : "any moment"}</span>`;
}

const byWorker = (held) => Map.groupBy ? Map.groupBy(held, (j) => j.node) : held.reduce((all, j) => all.set(j.node, [...(all.get(j.node) ?? []), j]), new Map());
const commandsOf = (topic, held) => [...byWorker(held)].map(([node, jobs]) => `topics queue nack ${quote(topic)} --node ${quote(node)} ${jobs.map((j) => j.seq).join(" ")}`).join("; ");
async function giveBack(topic, held, progress) {
  let done = 0;
  for (const [node, jobs] of byWorker(held)) {
    await post(`/v0/topics/${name(topic)}/nack`, { node, seqs: jobs.map((j) => j.seq) });
    progress((done += jobs.length), held.length);
  }
}

// Dead letters

const read = (raw) => { try { return JSON.parse(raw.text); } catch { return {}; } };
const causeOf = (note) => [note.$dead_letter_error_type, note.$dead_letter_error].filter(Boolean).join(": ") || "no cause was given";

// All letters of the queue, read again only when its dead-letter topic changed.
async function everyLetter(topic, from, known, signal) {
  const state = await get(`/v0/topics/${name(from)}?touch=false`, { signal }).catch((error) => { if (error.status === 404) return null; throw error; });
  const mark = state ? `${state.epoch} ${state.head_seq} ${state.count} ${state.delete_version}` : "";
  if (known?.mark === mark) return known;
  const rows = [];
  let before = null, more = false;
  for (; state && rows.length < MOST; ) {
    const page = await get(`/v0/topics/${name(from)}/records?order=desc&limit=${PAGE}&include_tags=true${before ? `&before_seq=${before}` : ""}`, { signal });
    for (const r of page.records) {
      const note = r.meta ? read(r.meta) : {};
      if (note.$dead_letter_from === topic) rows.push({ ...r, note, cause: causeOf(note) });
    }
    before = page.next_before_seq ?? null;
    if (before === null) break;
    more = rows.length >= MOST;
  }
  return { mark, rows, more };
}

export function DeadLetters({ topic, state, query, may }) {
  const from = state.config.dead_letter, wanted = query.cause ?? "", known = useRef(null);
  const letters = usePoll(async (signal) => (known.current = from ? await everyLetter(topic, from, known.current, signal) : { rows: [] }), 3000, [topic, from]);
  const [open, setOpen] = useState(null), [doing, setDoing] = useState(null), [pace, setPace] = useState("100");
  const rows = letters.value?.rows ?? [], low = wanted.toLowerCase();
  const shown = useMemo(() => rows.filter((r) => !low || r.cause.toLowerCase().includes(low) || (r.$tag ?? "").toLowerCase().includes(low)), [rows, low]);
  const choice = useChoice(shown, (r) => r.$seq, wanted);
  if (!from) return html`<section class="card"><p>This queue has no dead-letter topic, so jobs are tried for ever. Set <code>dead_letter</code> and <code>max_deliveries</code> under Settings.</p></section>`;
  if (!letters.value) return html`<${Problem} error=${letters.error} />${!letters.error && html`<p class="loading">Reading the dead letters…</p>`}`;
  const seqs = choice.chosen.map((r) => r.$seq), many = seqs.length;
  const what = says(choice, wanted, "job"), asked = { what, seqs, many, others: rows.length - many };
  const causes = Object.entries(rows.reduce((all, r) => ({ ...all, [r.cause]: (all[r.cause] ?? 0) + 1 }), {})).sort((a, b) => b[1] - a[1]).slice(0, 6);
  const over = () => { setDoing(null); choice.clear(); known.current = null; letters.again(); };
  return html`<section class="card"><h2>Dead letters <${Stale} ...${letters} /></h2>
    <div class="bar"><label>Cause or tag contains <input type="search" value=${wanted} onInput=${(e) => setQuery({ cause: e.target.value })} /></label>
      <span class="faint" role="status">${number(shown.length)} of ${number(rows.length)}</span><${Unpick} choice=${choice} /><span class="grow"></span>
      ${may("write") && may("delete") && many > 0 && html`<button type="button" class="primary" onClick=${() => setDoing({ act: "retry", ...asked })}>Retry ${what}…</button>`}
      ${may("delete") && many > 0 && html`<button type="button" class="danger" onClick=${() => setDoing({ act: "delete", ...asked })}>Delete ${what}…</button>`}</div>
    ${causes.length > 1 && html`<p class="causes">${causes.map(([cause, n]) => html`<button type="button" class="badge" onClick=${() => setQuery({ cause })}>${visible(cause).slice(0, 80)} <b>${number(n)}</b></button>`)}</p>`}
    ${shown.length === 0 ? html`<p class="faint">${rows.length ? "No dead letter matches." : "No job of this queue died."}</p>` : html`<div class="scroll"><table class="list"><thead><tr><th scope="col"><${PickAll} choice=${choice} shown=${shown} /></th><th scope="col" class="n">Letter</th><th scope="col">Died</th><th scope="col">Cause</th><th scope="col" class="n">Deliveries</th><th scope="col">Data</th></tr></thead>
      <tbody>${shown.slice(0, DRAWN).map((r) => html`<tr key=${r.$seq}><td><${Pick} choice=${choice} seq=${r.$seq} label=${`letter ${r.$seq}`} /></td><td class="n"><button type="button" class="plain link" aria-expanded=${open === r.$seq} aria-label=${`letter ${r.$seq}: show all of it`} onClick=${() => setOpen(open === r.$seq ? null : r.$seq)}>${number(r.$seq)}</button></td><td><span title=${new Date(r.$ts).toISOString()}>${ago(r.$ts)}</span></td><td class="cause">${visible(r.cause.slice(0, 500))}</td><td class="n">${r.note.$dead_letter_deliveries ?? "–"}</td><td class="wide"><code>${preview(r.data, 80)}</code>${open === r.$seq && html`<p><${Copy} text=${r.data.text} what="Copy data" /> <${When} ms=${r.$ts} /></p><${Json} raw=${r.data} /><${Json} raw=${r.meta} />`}</td></tr>`)}</tbody></table></div>`}
    ${shown.length > DRAWN && html`<p class="faint">${number(shown.length - DRAWN)} more match. Actions are for all of them.</p>`}
    ${letters.value.more && html`<p class="faint">Only the newest ${number(MOST)} are looked at.</p>`}
    ${doing?.act === "retry" && html`<${Ask} title=${`Retry ${doing.what}`} action="Retry" command=${perThousand(`topics queue redrive ${quote(topic)}`, doing.seqs)} onNo=${() => setDoing(null)} onYes=${async (progress, stop) => { await retry(topic, from, doing.seqs, Number(pace), progress, stop); over(); }}>
      <p><b>${doing.what}</b> ${doing.many === 1 ? "goes" : "go"} back to <b>${topic}</b> with a fresh count of deliveries, and ${doing.many === 1 ? "leaves" : "leave"} <b>${from}</b>. ${doing.others > 0 ? `The other ${number(doing.others)} stay.` : ""}</p>
      <label>How fast <select value=${pace} onChange=${(e) => setPace(e.target.value)}>${PACES.map(([text, n]) => html`<option value=${n}>${text}</option>`)}</select></label>
      ${Number(pace) > 0 && html`<p class="faint">This takes about ${span(doing.many / Number(pace))}; close the tab or press Stop, and the rest stays where it is.</p>`}<//>`}
    ${doing?.act === "delete" && html`<${Ask} title=${`Delete ${doing.what}`} action="Delete for good" danger=${true} command=${perThousand(`topics delete ${quote(from)}`, doing.seqs)} onNo=${() => setDoing(null)} onYes=${async (progress, stop) => { await remove(from, doing.seqs, progress, stop); over(); }}><p><b>${doing.what}</b> ${doing.many === 1 ? "is" : "are"} removed from <b>${from}</b> for good. ${doing.others > 0 ? `The other ${number(doing.others)} stay.` : ""}</p><//>`}
  </section>`;
}

const pause = (ms, stop) => new Promise((wake) => { const timer = setTimeout(wake, ms); stop.addEventListener("abort", () => { clearTimeout(timer); wake(); }, { once: true }); });

// So many a second, in small calls, so that workers and other clients are served in between.
async function retry(topic, from, seqs, pace, progress, stop) {
  const step = pace ? Math.max(1, Math.round(pace / 5)) : 100, oldestFirst = seqs.slice().reverse();
  for (let at = 0; at < oldestFirst.length && !stop.aborted; at += step) {
    const began = performance.now();
    await post(`/v0/topics/${name(topic)}/redrive`, { from, seqs: oldestFirst.slice(at, at + step), max: step });
    progress(Math.min(at + step, seqs.length), seqs.length);
    const rest = pace ? (1000 * step) / pace - (performance.now() - began) : 0;
    if (rest > 0 && at + step < seqs.length) await pause(rest, stop);
  }
}

async function remove(from, seqs, progress, stop) {
  for (let at = 0; at < seqs.length && !stop.aborted; at += 1000) {
    await post(`/v0/topics/${name(from)}/delete`, { seqs: seqs.slice(at, at + 1000) });
    progress(Math.min(at + 1000, seqs.length), seqs.length);
  }
}
