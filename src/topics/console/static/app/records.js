// The records of a topic, newest first. Losses stand in the list where they happened.

import { follow, get, name, post } from "./api.js";
import { preview, visible } from "./json.js";
import { Component } from "../vendor/preact.js";
import { Ask, Copy, Json, Problem, When, counted, href, html, moment, number, quote, readRoute, setQuery, useCallback, useEffect, useRef, useState } from "./ui.js";

const PAGE = 50, KEPT = 2000, MOST = 2000, LIVE = 100; // LIVE rows are drawn again within a few milliseconds
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

// The page after `seq`, oldest first as the server has it. With a loss before it there is a tombstone.
async function newer(topic, seq, { match, signal }) {
  const page = await get(`/v0/topics/${name(topic)}/records?from_seq=${seq}&limit=${PAGE}&include_tags=true${match ? `&match=${name(match)}` : ""}`, { signal });
  const lost = page.tombstone;
  const gaps = lost ? [{ gap: true, from: lost.gap_from, to: lost.gap_to, kind: lost.reason }] : [];
  return { rows: [...page.records, ...gaps], next: page.caught_up ? null : page.next_from_seq };
}

const merge = (rows, more) => [...rows, ...more].sort((a, b) => (b.$seq ?? b.to) - (a.$seq ?? a.to)).filter((row, i, all) => i === 0 || (row.$seq ?? -row.to) !== (all[i - 1].$seq ?? -all[i - 1].to));

export function Records({ topic, state, query, may }) {
  const match = query.match ?? "", at = query.seq ? Number(query.seq) : null, live = query.live === "1";
  const [rows, setRows] = useState([]), [next, setNext] = useState(null), [error, setError] = useState(null);
  const [busy, setBusy] = useState(true), [open, setOpen] = useState(query.open ? Number(query.open) : at), [after, setAfter] = useState(null), [paused, setPaused] = useState(0);
  const [removing, setRemoving] = useState(null);
  const foot = useRef(null), top = useRef(null), list = useRef(null), held = useRef([]), pausedNow = useRef(false);
  const load = useCallback(async (before, signal) => {
    setBusy(true);
    try {
      const page = await older(topic, before, { match, signal });
      setRows((was) => merge(before ? was.slice(-MOST) : [], page.rows));
      setNext(page.next);
      setError(null);
    } catch (failed) { if (failed.name !== "AbortError") setError(failed); return; }
    setBusy(false);
  }, [topic, match]);
  useEffect(() => {
    const stop = new AbortController();
    setRows([]);
    const from = at ? at + Math.floor(PAGE / 2) : null;
    setAfter(from === null ? null : from - 1);
    setOpen(query.open ? Number(query.open) : at);
    load(from, stop.signal).then(() => requestAnimationFrame(() => {
      if (at && !stop.signal.aborted) (list.current?.querySelector(".row.open") ?? list.current?.querySelector(".gap.here"))?.scrollIntoView({ block: "center" });
    }));
    return () => stop.abort();
  }, [topic, match, at]);
  const loadNewer = useCallback(async () => {
    setBusy(true);
    try {
      const page = await newer(topic, after, { match });
      const tall = document.documentElement.scrollHeight;
      setRows((was) => { const all = merge(was, page.rows); if (all.length > MOST) { const last = all[MOST - 1]; setNext(last.$seq ?? last.from); } return all.slice(0, MOST); });
      setAfter(page.next);
      // What was read stays where it is: the new rows come above it.
      requestAnimationFrame(() => { if (scrollY < 5) scrollBy(0, document.documentElement.scrollHeight - tall); });
      setError(null);
    } catch (failed) { setError(failed); }
    setBusy(false);
  }, [topic, match, after]);
  useEffect(() => { // Upwards only after the reader scrolled: the first page must not run away.
    if (after === null || busy || live) return undefined;
    const look = () => { if (scrollY < 60) loadNewer(); };
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, [after, busy, live, loadNewer]);
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
      else if (kind === "ended") { setError(said); setQuery({ live: "" }); }
      if (held.current.length > KEPT) held.current.splice(0, held.current.length - KEPT);
    });
    return () => { stop(); clearInterval(timer); held.current = []; };
  }, [live, topic, match]);
  const toggle = (seq) => {
    const now = open === seq ? null : seq, { parts, query: asked } = readRoute();
    setOpen(now);
    history.replaceState(null, "", href(parts, { ...asked, open: now ?? "" })); // no new page: only the link changes
  };
  const move = (event) => { // Arrow keys, and j and k, go from row to row.
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!by || !event.target.classList.contains("line")) return;
    const lines = [...list.current.querySelectorAll("button.line")], to = lines[lines.indexOf(event.target) + by];
    if (to) { event.preventDefault(); to.focus(); }
  };
  const pause = () => { pausedNow.current = !pausedNow.current; setPaused(pausedNow.current ? held.current.length || -1 : 0); };
  return html`
    <form class="bar" onSubmit=${(e) => { e.preventDefault(); jump(e.target, topic, setError); }}>
      <label>Tag <input name="match" placeholder="user-7 or user-*" defaultValue=${match} /></label>
      <label>Go to seq <input name="seq" inputmode="numeric" pattern="[0-9]*" defaultValue=${query.seq ?? ""} /></label>
      <label>or time <input name="time" type="datetime-local" step="1" /></label>
      <button>Show</button>
      ${(match || at) && html`<button type="button" class="quiet" onClick=${() => setQuery({ match: "", seq: "", open: "" })}>Clear</button>`}
      <span class="grow"></span>
      <label class="inline"><input type="checkbox" checked=${live} onChange=${(e) => { pausedNow.current = false; setQuery({ live: e.target.checked ? "1" : "", seq: "", open: "" }); }} /> Live</label>
      ${live && html`<button type="button" onClick=${pause} aria-pressed=${pausedNow.current}>${pausedNow.current ? `Go on${paused > 0 ? ` (${number(paused)} new)` : ""}` : "Pause"}</button>`}
      ${may("delete") && match && html`<button type="button" class="danger" onClick=${() => setRemoving(match)}>Delete what matches…</button>`}
    </form>
    <${Problem} error=${error} />
    ${after !== null && !live && html`<p ref=${top}><button type="button" onClick=${loadNewer} disabled=${busy}>Newer records</button> <a href=${href(["topics", topic], { match })}>Go to the newest</a></p>`}
    <ol class="records" ref=${list} aria-label="Records, newest first" aria-busy=${busy} onKeyDown=${move}>
      ${rows.map((row, i) => (row.gap ? html`<${Gap} key=${"gap" + row.to} ...${row} topic=${topic} here=${at !== null && row.from <= at && at <= row.to} before=${rows[i - 1]?.$ts} />` : html`<${Row} key=${row.$seq} record=${row} topic=${topic} open=${open === row.$seq} onToggle=${toggle} />`))}
    </ol>
    <p ref=${foot} class="faint">${busy ? "Loading…" : rows.length === 0 ? (match ? "No live record has such a tag." : "No live records.") : live && next !== null ? `The newest ${LIVE} are shown while the tail is live.` : next === null ? "This is the beginning." : html`<button type="button" onClick=${() => load(next)}>Older records</button>`}</p>
    ${removing && html`<${Remove} topic=${topic} match=${removing} onDone=${() => { setRemoving(null); load(null); }} />`}`;
}

// How many records a filter matches, as far as a few pages tell.
async function tally(topic, match) {
  let n = 0, before = null;
  for (let pages = 0; pages < 20; pages++) {
    const page = await get(`/v0/topics/${name(topic)}/records?order=desc&limit=1000&match=${name(match)}${before ? `&before_seq=${before}` : ""}`);
    n += page.records.length;
    before = page.next_before_seq ?? null;
    if (before === null) return { n, more: false };
  }
  return { n, more: true };
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

class Row extends Component {
  // Records never change: a row is drawn again only when it opens or closes.
  shouldComponentUpdate(next) { return next.open !== this.props.open || next.record.$seq !== this.props.record.$seq; }
  render({ record, topic, open, onToggle }) { return line(record, topic, open, () => onToggle(record.$seq)); }
}

function line(record, topic, open, onToggle) {
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

const KINDS = { deleted: "deleted on purpose", cap: LOSSES.cap, ttl: LOSSES.ttl, crash: LOSSES.crash, skipped: LOSSES.skipped, source_trim: LOSSES.source_trim };

function Gap({ from, to, kind, topic, here, before }) {
  const [open, setOpen] = useState(false), [runs, setRuns] = useState(null), [error, setError] = useState(null);
  const why = async () => {
    setOpen(!open);
    if (open || runs) return;
    try { setRuns((await post(`/v0/topics/${name(topic)}/holes`, { from_seq: from, to_seq: to })).runs); } catch (failed) { setError(failed); }
  };
  return html`<li class=${here ? "gap here" : "gap"}><strong>${counted(to - from + 1, "record")} lost</strong>, seq ${number(from)}${to > from ? ` to ${number(to)}` : ""}: ${LOSSES[kind] ?? kind}.${before ? html` Written before <${When} ms=${before} />.` : ""}
    <button type="button" class="quiet" aria-expanded=${open} onClick=${why}>Why</button><a href=${href(["topics", topic], { tab: "ledger" })}>The ledger</a>
    ${open && html`<div class="reasons" role="status"><${Problem} error=${error} />${runs && html`<ul>${runs.slice(0, 50).map(([a, b, what]) => html`<li>seq ${number(a)}${b > a ? ` to ${number(b)}` : ""}: ${KINDS[what] ?? what}</li>`)}</ul>${runs.length > 50 && html`<p>and ${number(runs.length - 50)} more ranges</p>`}`}</div>`}</li>`;
}

function Remove({ topic, match, onDone }) {
  const [count, setCount] = useState(null);
  useEffect(() => { tally(topic, match).then(setCount, () => setCount({ n: null })); }, []);
  const remove = async () => { await post(`/v0/topics/${name(topic)}/delete`, { match }); onDone(); };
  return html`<${Ask} title="Delete records" action="Delete for good" danger=${true} command=${`topics delete ${quote(topic)} --match ${quote(match)}`} onYes=${remove} onNo=${onDone}>
    <p><b>${count === null ? "Counting…" : count.n === null ? "" : `${counted(count.n, "record")}${count.more ? " or more" : ""}.`}</b> Every live record of <b>${topic}</b> whose tag ${match.endsWith("*") ? `begins with ${visible(match.slice(0, -1))}` : `is ${visible(match)}`} is removed, now and for good. Readers are not told.</p>
  <//>`;
}
