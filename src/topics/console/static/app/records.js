// The records of a topic, newest first. Losses stand in the list where they happened.

import { follow, get, name, post } from "./api.js";
import { preview, visible } from "./json.js";
import { Ask, Copy, Json, Problem, When, counted, href, html, moment, number, quote, setQuery, useCallback, useEffect, useRef, useState } from "./ui.js";

const PAGE = 50, KEPT = 2000, LIVE = 300; // LIVE rows are drawn again within a few milliseconds
export const LOSSES = {
  cap: "evicted: the topic is capped", ttl: "expired: records of this topic live only so long", mixed: "evicted or expired",
  crash: "lost in a crash, or to damage on disk", repair: "lost in a repair", source_trim: "lost in the source before a router copied it",
  recreated: "the topic was dropped and created again", skipped: "never used: reserved when the process died",
};

async function older(topic, before, { match, signal }) {
  const page = await get(`/v0/topics/${name(topic)}/records?order=desc&limit=${PAGE}&include_tags=true${before ? `&before_seq=${before}` : ""}${match ? `&match=${name(match)}` : ""}`, { signal });
  const gaps = page.gaps.map((gap) => ({ gap: true, from: gap.gap_from, to: gap.gap_to, kind: gap.reason }));
  return { rows: [...page.records, ...gaps], next: page.next_before_seq ?? null };
}

const merge = (rows, more) => [...rows, ...more].sort((a, b) => (b.$seq ?? b.to) - (a.$seq ?? a.to)).filter((row, i, all) => i === 0 || (row.$seq ?? -row.to) !== (all[i - 1].$seq ?? -all[i - 1].to));

export function Records({ topic, state, query, may }) {
  const match = query.match ?? "", at = query.seq ? Number(query.seq) : null;
  const [rows, setRows] = useState([]), [next, setNext] = useState(null), [error, setError] = useState(null);
  const [busy, setBusy] = useState(true), [open, setOpen] = useState(at), [live, setLive] = useState(false), [paused, setPaused] = useState(0);
  const [removing, setRemoving] = useState(null);
  const foot = useRef(null), held = useRef([]), pausedNow = useRef(false);
  const load = useCallback(async (before, signal) => {
    setBusy(true);
    try {
      const page = await older(topic, before, { match, signal });
      setRows((was) => merge(before ? was : [], page.rows));
      setNext(page.next);
      setError(null);
    } catch (failed) { if (failed.name !== "AbortError") setError(failed); return; }
    setBusy(false);
  }, [topic, match]);
  useEffect(() => {
    const stop = new AbortController();
    setRows([]);
    load(at ? at + Math.floor(PAGE / 2) : null, stop.signal);
    return () => stop.abort();
  }, [topic, match, at]);
  useEffect(() => { // Endless scroll: the next page is fetched when the end comes into view.
    if (next === null || busy || live) return undefined;
    const seen = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) load(next); }, { rootMargin: "400px" });
    seen.observe(foot.current);
    return () => seen.disconnect();
  }, [next, busy, live]);
  useEffect(() => {
    if (!live) return undefined;
    // Records that arrive are shown at most ten times a second, and only the newest stay in the list.
    const show = () => {
      if (pausedNow.current) { setPaused(held.current.length); return; }
      if (!held.current.length) return;
      const fresh = held.current.splice(0);
      setRows((was) => {
        const shown = merge(fresh.slice(-LIVE), was);
        if (shown.length <= LIVE) return shown;
        const last = shown[LIVE - 1];
        setNext(last.$seq ?? last.from);
        return shown.slice(0, LIVE);
      });
      setPaused(0);
    };
    const timer = setInterval(show, 100);
    const top = rows.reduce((most, row) => Math.max(most, row.$seq ?? row.to), 0);
    const stop = follow(topic, top || null, (kind, said) => {
      if (kind === "record") held.current.push(...said.records.filter((r) => matches(r, match)));
      else if (kind === "tombstone") held.current.push({ gap: true, from: said.gap_from, to: said.gap_to, kind: said.reason });
      else if (kind === "ended") { setError(said); setLive(false); }
      if (held.current.length > KEPT) held.current.splice(0, held.current.length - KEPT);
    });
    return () => { stop(); clearInterval(timer); };
  }, [live, topic, match]);
  const pause = () => { pausedNow.current = !pausedNow.current; setPaused(pausedNow.current ? held.current.length || -1 : 0); };
  return html`
    <form class="bar" onSubmit=${(e) => { e.preventDefault(); jump(e.target, topic, setError); }}>
      <label>Tag <input name="match" placeholder="user-7 or user-*" defaultValue=${match} /></label>
      <label>Go to seq <input name="seq" inputmode="numeric" pattern="[0-9]*" defaultValue=${query.seq ?? ""} /></label>
      <label>or time <input name="time" type="datetime-local" step="1" /></label>
      <button>Show</button>
      ${(match || at) && html`<button type="button" class="quiet" onClick=${() => setQuery({ match: "", seq: "" })}>Clear</button>`}
      <span class="grow"></span>
      <label class="inline"><input type="checkbox" checked=${live} onChange=${(e) => { setLive(e.target.checked); pausedNow.current = false; }} /> Live</label>
      ${live && html`<button type="button" onClick=${pause} aria-pressed=${pausedNow.current}>${pausedNow.current ? `Go on${paused > 0 ? ` (${number(paused)} new)` : ""}` : "Pause"}</button>`}
      ${may("delete") && match && html`<button type="button" class="danger" onClick=${() => setRemoving(match)}>Delete what matches…</button>`}
    </form>
    <${Problem} error=${error} />
    <ol class="records" aria-label="Records, newest first" aria-busy=${busy}>
      ${rows.map((row) => (row.gap ? html`<${Gap} key=${"gap" + row.to} ...${row} topic=${topic} />` : html`<${Row} key=${row.$seq} record=${row} topic=${topic} open=${open === row.$seq} onToggle=${() => setOpen(open === row.$seq ? null : row.$seq)} />`))}
    </ol>
    <p ref=${foot} class="faint">${busy ? "Loading…" : rows.length === 0 ? (match ? "No live record has such a tag." : "No live records.") : live && next !== null ? `The newest ${LIVE} are shown while the tail is live.` : next === null ? "This is the beginning." : html`<button type="button" onClick=${() => load(next)}>Older records</button>`}</p>
    ${removing && html`<${Remove} topic=${topic} match=${removing} onDone=${() => { setRemoving(null); load(null); }} />`}`;
}

function matches(record, match) {
  if (!match) return true;
  const tag = record.$tag ?? null;
  return tag !== null && (match.endsWith("*") ? tag.startsWith(match.slice(0, -1)) : tag === match);
}

async function jump(form, topic, setError) {
  const match = form.match.value.trim(), time = form.time.value;
  let seq = form.seq.value.trim();
  if (time) {
    try {
      const page = await post(`/v0/topics/${name(topic)}/diff`, { from_ts: new Date(time).getTime(), limit: 1 });
      seq = page.records[0]?.$seq ?? page.head_seq;
    } catch (failed) { setError(failed); return; }
  }
  setQuery({ match, seq });
}

function Row({ record, topic, open, onToggle }) {
  const meta = record.meta;
  return html`<li class=${open ? "row open" : "row"}>
    <button type="button" class="line" aria-expanded=${open} onClick=${onToggle}>
      <span class="seq">${number(record.$seq)}</span><span class="ts">${moment(record.$ts)}</span>
      ${record.$tag !== undefined && html`<span class="tag"><bdi>${visible(record.$tag)}</bdi></span>`}<code>${preview(record.data)}</code>
    </button>
    ${open && html`<div class="whole">
      <p class="faint">seq ${number(record.$seq)} · <${When} ms=${record.$ts} />${record.$node !== undefined && html` · node <bdi>${visible(record.$node)}</bdi>`}${record.$tag !== undefined && html` · tag <a href=${href(["topics", topic], { match: record.$tag })}><bdi>${visible(record.$tag)}</bdi></a>`} · <a href=${href(["topics", topic], { seq: record.$seq })}>link</a> <${Copy} text=${record.data.text} what="Copy data" /></p>
      <${Json} raw=${record.data} />
      ${meta !== undefined && html`<p class="faint">meta</p><${Json} raw=${meta} />`}
    </div>`}
  </li>`;
}

function Gap({ from, to, kind, topic }) {
  return html`<li class="gap"><strong>${counted(to - from + 1, "record")} lost</strong>, seq ${number(from)}${to > from ? ` to ${number(to)}` : ""}: ${LOSSES[kind] ?? kind}. <a href=${href(["topics", topic], { tab: "ledger" })}>The ledger</a></li>`;
}

function Remove({ topic, match, onDone }) {
  const remove = async () => { await post(`/v0/topics/${name(topic)}/delete`, { match }); onDone(); };
  return html`<${Ask} title="Delete records" action="Delete for good" danger=${true} command=${`topics delete ${quote(topic)} --match ${quote(match)}`} onYes=${remove} onNo=${onDone}>
    <p>Every live record of <b>${topic}</b> whose tag ${match.endsWith("*") ? `begins with ${match.slice(0, -1)}` : `is ${match}`} is removed, now and for good. Readers are not told.</p>
  <//>`;
}
