// Health at a glance, and what is wrong now: a sentence each, with a link to where it shows.

import { getHistory } from "./api.js";
import { visible } from "./json.js";
import { Chart, Problem, Stale, counted, href, html, number, rate, size, span, usePoll, useState } from "./ui.js";

const FIRST = 8;

// Of the whole server. Those of topics come from the server, which looks at all topics anyway.
export function troubles(m) {
  const found = [];
  const add = (what, to) => found.push({ what, to });
  if (!m.ready) add(`The server is not ready: ${m.replay_progress < 1 ? `recovery is at ${Math.round(m.replay_progress * 100)} %` : "the log cannot be written"}.`, "disk");
  if (m.wal.read_only) add("A log shard takes no writes any more: the disk is full or failed. Make room, then restart the server.", "disk");
  if (m.pressure > 0.4) add(`Pressure is ${m.pressure.toFixed(2)}: durable writes are answered later, so that the log keeps up.`, "pressure");
  if (m.disk_free_bytes !== undefined && m.disk_free_bytes < Math.max(1e9, m.disk_total_bytes * 0.05)) add(`Only ${size(m.disk_free_bytes)} are free on the disk of the data directory.`, "disk");
  if (m.streams_lagged_total > 0) add(`${counted(m.streams_lagged_total, "stream")} fell too far behind and ended since the start; their readers come back where they were.`, "streams");
  return found;
}

const Figure = ({ id, label, value, note, bad }) => html`<div class=${bad ? "figure bad" : "figure"} id=${id}><dt>${label}</dt><dd>${value}</dd>${note && html`<dd class="note">${note}</dd>`}</div>`;

function Wrong({ server, topics }) {
  const [all, setAll] = useState(false), many = server.length + topics.length;
  if (!many) return html`<p class="good">Nothing needs attention.</p>`;
  const shown = all ? topics : topics.slice(0, FIRST);
  const jump = (to) => (event) => { event.preventDefault(); const there = document.getElementById(to); there?.scrollIntoView({ block: "center" }); there?.focus?.(); };
  return html`<ul class="wrong">
    ${server.map((w) => html`<li class="heavy"><a href="#/" onClick=${jump("figure-" + w.to)}>${w.what}</a></li>`)}
    ${shown.map((w) => html`<li class=${w.weight >= 7 ? "heavy" : ""}><a href=${w.part === "routers" ? href(["routers"]) : href(["topics", w.topic], { tab: w.part })}><bdi>${visible(w.topic)}</bdi></a> <span>${visible(w.what)}</span></li>`)}
  </ul>${topics.length > shown.length && html`<button type="button" class="quiet" onClick=${() => setAll(true)}>${number(topics.length - shown.length)} more</button>`}`;
}

export function Overview() {
  const history = usePoll(getHistory, 5000, []);
  const past = history.value, m = past?.now;
  if (!m) return html`<h1>Overview</h1><${Problem} error=${history.error} />${!history.error && html`<p class="loading">Asking the server…</p>`}`;
  const series = past.server, now = (line) => series[line]?.at(-1) ?? null;
  const mean = m.wal.fsync_count ? m.wal.fsync_micros_total / m.wal.fsync_count / 1000 : null, lag = now("loop_lag_ms"), sync = now("sync_ms") ?? mean;
  const ms = (n) => (n === null ? "–" : `${n < 10 ? n.toFixed(2) : Math.round(n)} ms`);
  const server = troubles(m), free = m.disk_free_bytes;
  return html`
    <h1>Overview <${Stale} ...${history} /></h1>
    <section class="card"><h2>What needs attention</h2><${Wrong} server=${server} topics=${past.wrong ?? []} /></section>
    <dl class="figures">
      <${Figure} label="Records in" value=${rate(now("records_in"))} note=${`${counted(m.records_live, "live record")}`} />
      <${Figure} label="Records out" value=${rate(now("records_out"))} note="to open streams" />
      <${Figure} id="figure-streams" label="Watchers" value=${number(m.sse_connections)} note=${counted(m.watch_sessions, "watch session")} />
      <${Figure} label="Topics" value=${number(m.topics)} note=${`${counted(m.routers, "router")}, ${counted(m.queue_topics, "queue")}`} />
      <${Figure} label="Live data" value=${size(m.bytes_live)} note=${m.log_bytes === undefined ? "" : `log files: ${size(m.log_bytes)}`} />
      <${Figure} id="figure-disk" label="Disk left" value=${size(free)} note=${free === undefined ? "" : `${Math.round((100 * free) / m.disk_total_bytes)} % of ${size(m.disk_total_bytes)}`} bad=${server.some((w) => w.to === "disk")} />
      <${Figure} label="Sync latency" value=${ms(sync)} note=${mean === null ? "nothing was synced yet" : `${ms(mean)} over ${counted(m.wal.fsync_count, "sync")}`} />
      <${Figure} label="Loop lag" value=${ms(lag)} note="longest in the last 10 s" />
      <${Figure} id="figure-pressure" label="Pressure" value=${m.pressure.toFixed(2)} note=${`${counted(m.throttled_total, "request")} throttled`} bad=${m.pressure > 0.4} />
      <${Figure} label="Running for" value=${span(m.uptime_ms / 1000)} note=${m.ready ? "ready" : "not ready"} />
    </dl>
    <div class="charts">
      <${Chart} title="Records per second" times=${past.times} lines=${[{ name: "in", points: series.records_in }, { name: "out", points: series.records_out ?? series.records_in.map(() => null) }]} format=${rate} />
      <${Chart} title="Mean sync latency" times=${past.times} lines=${[{ name: "sync", points: series.sync_ms }]} format=${ms} least=${0.01} />
      <${Chart} title="Loop lag" times=${past.times} lines=${[{ name: "loop lag", points: series.loop_lag_ms }]} format=${ms} least=${0.01} />
      <${Chart} title="Pressure" times=${past.times} lines=${[{ name: "pressure", points: series.pressure }]} format=${(n) => n.toFixed(2)} />
    </div>`;
}
