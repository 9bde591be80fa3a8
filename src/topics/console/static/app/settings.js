// The settings of a topic, with an editor that says what a change would evict before it does.

import { get, name, post, put } from "./api.js";
import { Ask, Problem, counted, html, moment, number, quote, size, useState } from "./ui.js";

const HELP = {
  type: "log or queue; cannot be changed", durability: "what an acknowledged write survives", ttl_ms: "records older than this expire; 0 never",
  cap_records: "keep at most so many live records; 0 any number", cap_bytes: "keep at most so many bytes; 0 any number", discard: "when a cap is reached: old evicts the oldest, reject refuses the write",
  idempotency_window_ms: "how long a repeated key is recognised", dedupe_node: "readers may leave out their own records", priority: "who is served first under pressure; empty: by use",
  auto_priority: "topics in use come first", auto_create: "a write may create the topic", lease_ms: "how long a worker may hold a job", claim_jitter_ms: "spread of claims",
  max_deliveries: "tries before a job is a dead letter; 0 any number", dead_letter: "topic for dead letters; empty: none", leases_durable: "leases survive a restart",
};
const HIDDEN = new Set(["durable"]);
const FOR_QUEUES = new Set(["lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable"]);

export function Settings({ topic, state, may, onChanged }) {
  const [draft, setDraft] = useState({}), [asking, setAsking] = useState(null), [error, setError] = useState(null);
  const config = state.config, isQueue = state.type === "queue";
  const names = Object.keys(config).filter((n) => !HIDDEN.has(n) && (isQueue || !FOR_QUEUES.has(n)));
  const changed = Object.entries(draft).filter(([n, value]) => value !== config[n]);
  const edit = (n, value) => setDraft({ ...draft, [n]: value });
  const preview = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      const wanted = { ...config, ...Object.fromEntries(changed) };
      delete wanted.durable;
      const said = await put(`/v0/topics/${name(topic)}?dry_run=true`, wanted);
      setAsking({ wanted, evicted: said.evicted });
    } catch (failed) { setError(failed); }
  };
  const field = (n) => {
    const value = n in draft ? draft[n] : config[n];
    if (!may("admin") || n === "type") return html`<output id=${"s-" + n}>${value === null ? "–" : String(value)}</output>`;
    if (typeof config[n] === "boolean") return html`<input id=${"s-" + n} type="checkbox" checked=${value} onChange=${(e) => edit(n, e.target.checked)} />`;
    const choices = { durability: ["fsync", "disk", "memory", "ephemeral"], discard: ["old", "reject"] }[n];
    if (choices) return html`<select id=${"s-" + n} value=${value} onChange=${(e) => edit(n, e.target.value)}>${choices.map((c) => html`<option>${c}</option>`)}</select>`;
    const isText = n === "dead_letter";
    return html`<input id=${"s-" + n} value=${value ?? ""} inputmode=${isText ? "text" : "numeric"} onInput=${(e) => { const text = e.target.value.trim(); edit(n, text === "" ? (n === "priority" || isText ? null : 0) : isText ? text : Number(text)); }} />`;
  };
  const command = `topics config ${quote(topic)} ${changed.map(([n, v]) => `${n}=${quote(String(v ?? ""))}`).join(" ")}`;
  return html`<form class="card" onSubmit=${preview}><h2>Settings</h2>
    <table class="list settings"><tbody>${names.map((n) => html`<tr><th scope="row"><label for=${"s-" + n}>${n}</label></th><td>${field(n)}</td><td class="faint">${HELP[n] ?? ""}</td></tr>`)}</tbody></table>
    <${Problem} error=${error} />
    ${may("admin") && html`<p class="buttons"><button type="button" disabled=${!changed.length} onClick=${() => setDraft({})}>Undo</button><button class="primary" disabled=${!changed.length}>Review ${changed.length ? counted(changed.length, "change") : "changes"}…</button></p>`}
    ${asking && html`<${Ask} title="Change settings" action="Change" danger=${asking.evicted?.records > 0} command=${command} onNo=${() => setAsking(null)} onYes=${async () => { await put(`/v0/topics/${name(topic)}`, asking.wanted); setAsking(null); setDraft({}); onChanged(); }}>
      <ul>${changed.map(([n, v]) => html`<li><code>${n}</code>: ${String(config[n])} → <b>${String(v)}</b></li>`)}</ul>
      ${asking.evicted?.records > 0 ? html`<p class="problem">This evicts ${counted(asking.evicted.records, "record")} (${size(asking.evicted.bytes)}) at once, for good. Readers that had not read them are told.</p>` : html`<p class="good">No record is evicted by this.</p>`}
    <//>`}
  </form>`;
}
