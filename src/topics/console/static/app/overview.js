// Health at a glance, and what is wrong now, each with a link.

import { get } from "./api.js";
import { Chart, Problem, Stale, counted, html, number, rate, size, span, usePoll } from "./ui.js";

const JSON_ONLY = "application/json";

export function troubles(metrics) {
  const found = [];
  if (!metrics.ready) found.push(`The server is not ready: ${metrics.replay_progress < 1 ? `recovery is at ${Math.round(metrics.replay_progress * 100)} %` : "the log cannot be written"}.`);
  if (metrics.wal.read_only) found.push("A log shard takes no writes any more: the disk is full or failed. Restart the server once there is room.");
  if (metrics.pressure > 0.4) found.push(`Pressure is ${metrics.pressure.toFixed(2)}: durable writes are answered later so that the log keeps up.`);
  if (metrics.disk_free_bytes !== undefined && metrics.disk_free_bytes < 1e9) found.push(`Only ${size(metrics.disk_free_bytes)} are free on the disk of the data directory.`);
  return found;
}

const Figure = ({ label, value, note }) => html`<div class="figure"><dt>${label}</dt><dd>${value}</dd>${note && html`<dd class="note">${note}</dd>`}</div>`;

export function Overview() {
  const metrics = usePoll((signal) => get("/v0/metrics", { signal, accept: JSON_ONLY }), 5000, []);
  const history = usePoll((signal) => get("/v0/history", { signal }), 10000, []);
  const m = metrics.value, past = history.value;
  if (!m) return html`<${Problem} error=${metrics.error} /><p class="loading">Asking the server…</p>`;
  const series = past?.server, now = (line) => series?.[line]?.at(-1) ?? null;
  const syncs = m.wal.fsync_count ? m.wal.fsync_micros_total / m.wal.fsync_count / 1000 : null;
  const wrong = troubles(m);
  return html`
    <h1>Overview <${Stale} ...${metrics} /></h1>
    <section class="card"><h2>Now</h2>
      ${wrong.length === 0 ? html`<p class="good">Nothing needs attention.</p>` : html`<ul class="wrong">${wrong.map((what) => html`<li>${what}</li>`)}</ul>`}
    </section>
    <dl class="figures">
      <${Figure} label="Records in" value=${rate(now("records_in"))} note=${`${number(m.records_live)} live`} />
      <${Figure} label="Open streams" value=${number(m.sse_connections)} note=${counted(m.watch_sessions, "watch session")} />
      <${Figure} label="Topics" value=${number(m.topics)} note=${`${counted(m.routers, "router")}, ${counted(m.queue_topics, "queue")}`} />
      <${Figure} label="Live data" value=${size(m.bytes_live)} note=${m.disk_free_bytes === undefined ? `log written: ${size(m.wal.bytes_written)}` : `${size(m.disk_free_bytes)} of disk left`} />
      <${Figure} label="Sync latency" value=${syncs === null ? "–" : `${syncs.toFixed(2)} ms`} note=${`mean of ${counted(m.wal.fsync_count, "sync")}`} />
      <${Figure} label="Loop lag" value=${now("loop_lag_ms") === null ? "–" : `${now("loop_lag_ms").toFixed(1)} ms`} note="longest wait of the last step" />
      <${Figure} label="Pressure" value=${m.pressure.toFixed(2)} note=${`${counted(m.throttled_total, "request")} throttled`} />
      <${Figure} label="Running for" value=${span(m.uptime_ms / 1000)} note=${m.ready ? "ready" : "not ready"} />
    </dl>
    ${series && html`<div class="charts">
      <${Chart} title="Records written per second" times=${past.times} lines=${[{ name: "written", points: series.records_in }]} format=${rate} />
      <${Chart} title="Pressure" times=${past.times} lines=${[{ name: "pressure", points: series.pressure }]} format=${(n) => n.toFixed(2)} />
      <${Chart} title="Loop lag in ms" times=${past.times} lines=${[{ name: "loop lag", points: series.loop_lag_ms }]} format=${(n) => n.toFixed(1)} />
      <${Chart} title="Mean sync latency in ms" times=${past.times} lines=${[{ name: "sync", points: series.sync_ms }]} format=${(n) => n.toFixed(2)} />
    </div>`}`;
}
