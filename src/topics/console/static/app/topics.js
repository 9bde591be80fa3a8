// The list of topics or queues: search, sort, sizes, rates.

import { get, getHistory, name, put } from "./api.js";
import { Ask, Name, Problem, Sparkline, Stale, StackedBar, counted, href, html, number, quote, rate, setQuery, size, useEffect, useMemo, usePoll, useRef, useState, useWindow } from "./ui.js";

const ROW = 38, QUEUE_ROW = 58; // pixels, as the sheet says

async function everyTopic(prefix, signal) {
  const found = [];
  let cursor = "";
  do {
    const page = await get(`/v0/topics?details=true&page_size=1000&prefix=${name(prefix)}${cursor && `&cursor=${cursor}`}`, { signal });
    found.push(...page.topics);
    cursor = page.next_cursor ?? "";
  } while (cursor && found.length < 100000);
  return found;
}

const COLUMNS = {
  topic: ["Topic", (a, b) => (a.topic < b.topic ? -1 : 1)],
  count: ["Live records", (a, b) => b.count - a.count],
  bytes: ["Size", (a, b) => b.bytes - a.bytes],
  head_seq: ["Last seq", (a, b) => b.head_seq - a.head_seq],
  rate: ["Written", (a, b) => b.rate - a.rate],
};

export function Topics({ query, may, queues = false }) {
  const search = query.q ?? "", sort = query.sort ?? "topic";
  const [typed, setTyped] = useState(search), [making, setMaking] = useState(false);
  const timer = useRef(null);
  const list = usePoll((signal) => everyTopic("", signal), (all) => Math.max(5000, 10 * (all?.length ?? 0)), []); // longer for more topics
  const history = usePoll(getHistory, 10000, []);
  useEffect(() => setTyped(search), [search]);
  const type = (event) => {
    setTyped(event.target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q: event.target.value }), 120);
  };
  const rows = useMemo(() => {
    const wanted = search.toLowerCase();
    const found = (list.value ?? []).filter((t) => (!queues || t.type === "queue") && t.topic.toLowerCase().includes(wanted));
    for (const t of found) { t.points = history.value?.topics[t.topic] ?? null; t.rate = t.points?.at(-1) ?? 0; }
    return found.sort(COLUMNS[sort]?.[1] ?? COLUMNS.topic[1]);
  }, [list.value, history.value, search, sort, queues]);
  const shown = useWindow(rows.length, queues ? QUEUE_ROW : ROW);
  const head = (id) => html`<th scope="col" aria-sort=${sort === id ? "ascending" : undefined} class=${id === "topic" ? "" : "n"}><button type="button" class="plain" onClick=${() => setQuery({ sort: id === "topic" ? "" : id })}>${COLUMNS[id][0]}${sort === id ? " ▾" : ""}</button></th>`;
  return html`
    <h1>${queues ? "Queues" : "Topics"} <${Stale} ...${list} /></h1>
    <div class="bar">
      <label class="search"><span class="unseen">Search by name</span><input type="search" placeholder="Search by name" value=${typed} onInput=${type} /></label>
      <span class="faint" role="status">${list.value ? counted(rows.length, queues ? "queue" : "topic") : ""}</span>
      ${may("admin") && html`<button type="button" onClick=${() => setMaking(true)}>New ${queues ? "queue" : "topic"}…</button>`}
    </div>
    <${Problem} error=${list.error?.status ? list.error : null} />
    <div class="scroll"><table class=${queues ? "list windowed tall" : "list windowed"} aria-rowcount=${rows.length + 1}><thead><tr>${head("topic")}${!queues && html`<th scope="col">Durability</th>`}${head("rate")}<th scope="col"><span class="unseen">Written over time</span></th>${queues ? html`<th scope="col">Jobs</th>` : html`${head("count")}${head("bytes")}${head("head_seq")}`}</tr></thead>
    <tbody ref=${shown.body}>${shown.above > 0 && html`<tr key="above" class="room" aria-hidden="true"><td colspan="7"><svg width="1" height=${shown.above} /></td></tr>`}${rows.slice(shown.first, shown.last).map((t, i) => html`<tr key=${t.topic} aria-rowindex=${shown.first + i + 2}>
      <td class="name"><a href=${href(["topics", t.topic])}><${Name}>${t.topic}<//></a> ${!queues && t.type === "queue" && html`<span class="badge">queue</span>`} ${t.lost > 0 && html`<a class="badge warn" href=${href(["topics", t.topic], { tab: "ledger" })} title="Records lost: open the ledger">lost ${number(t.lost)}</a>`}</td>
      ${!queues && html`<td>${t.durability}</td>`}<td class="n">${rate(t.rate)}</td><td><${Sparkline} points=${t.points} label=${`records written to ${t.topic}`} /></td>
      ${queues ? html`<td><${Jobs} queue=${t.queue} /></td>` : html`<td class="n">${number(t.count)}</td><td class="n">${size(t.bytes)}</td><td class="n">${number(t.head_seq)}</td>`}
    </tr>`)}${shown.below > 0 && html`<tr key="below" class="room" aria-hidden="true"><td colspan="7"><svg width="1" height=${shown.below} /></td></tr>`}</tbody></table></div>
    ${list.value && rows.length === 0 && html`<p class="faint">${search ? "No name contains that." : queues ? "There is no queue yet." : "There is no topic yet."} ${!search && !queues && html`<a href="#/try">Write the first record</a>.`}</p>`}
    ${making && html`<${NewTopic} queues=${queues} onDone=${() => { setMaking(false); list.again(); }} />`}`;
}

export const Jobs = ({ queue }) => (queue ? html`<${StackedBar} parts=${jobParts(queue)} />` : null);
export const jobParts = (queue) => [
  { name: "ready", value: queue.ready, kind: "live" },
  { name: "leased", value: queue.in_flight, kind: "leased" },
  ...(queue.delayed === undefined ? [] : [{ name: "delayed", value: queue.delayed, kind: "skipped" }]),
  { name: "dead", value: queue.dead ?? queue.dead_lettered, kind: "lost" },
];

function NewTopic({ queues, onDone }) {
  const [topic, setTopic] = useState(""), [durability, setDurability] = useState("disk"), [letters, setLetters] = useState("");
  const body = { durability, ...(queues ? { type: "queue", ...(letters && { dead_letter: letters, max_deliveries: 5 }) } : {}) };
  const make = async () => {
    const state = await get(`/v0/topics/${name(topic)}?touch=false`).catch((error) => { if (error.status === 404) return null; throw error; });
    if (state) throw new Error(`${topic} exists already.`);
    await put(`/v0/topics/${name(topic)}`, body);
    onDone();
  };
  const options = [`durability=${durability}`, ...(queues ? ["type=queue", ...(letters ? [`dead_letter=${letters}`, "max_deliveries=5"] : [])] : [])];
  return html`<${Ask} title=${queues ? "New queue" : "New topic"} action="Create" command=${`topics create ${quote(topic || "NAME")} ${options.join(" ")}`} onYes=${make} onNo=${onDone}>
    <label>Name <input required pattern="[A-Za-z0-9][A-Za-z0-9._:\\-]{0,254}" value=${topic} onInput=${(e) => setTopic(e.target.value)} /></label>
    <label>Durability <select value=${durability} onChange=${(e) => setDurability(e.target.value)}>${["fsync", "disk", "memory", "ephemeral"].map((d) => html`<option>${d}</option>`)}</select></label>
    ${queues && html`<label>Dead letters go to <input placeholder="none" value=${letters} onInput=${(e) => setLetters(e.target.value)} /></label>`}
  <//>`;
}
