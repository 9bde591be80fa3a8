// One topic: records, ledger, settings, consumers; for a queue also jobs and dead letters.

import { get, name } from "./api.js";
import { Consumers } from "./consumers.js";
import { DeadLetters, Held } from "./jobs.js";
import { Ledger } from "./ledger.js";
import { Records } from "./records.js";
import { Settings } from "./settings.js";
import { Story } from "./story.js";
import { jobParts } from "./topics.js";
import { Name, Problem, Stale, StackedBar, ago, counted, href, html, number, size, usePoll } from "./ui.js";

const TABS = [["records", "Records"], ["jobs", "Jobs"], ["dead", "Dead letters"], ["ledger", "Ledger"], ["consumers", "Consumers"], ["settings", "Settings"]];

export function Topic({ topic, query, may }) {
  const state = usePoll((signal) => get(`/v0/topics/${name(topic)}?touch=false`, { signal }), 2000, [topic]);
  // The list counts the dead letters that there are; the state counts those since the start.
  const line = usePoll((signal) => (state.value?.queue ? get(`/v0/topics?details=true&page_size=1&prefix=${name(topic)}`, { signal }) : Promise.resolve(null)), 4000, [topic, Boolean(state.value?.queue)]);
  const jobs = line.value?.topics[0]?.queue ?? state.value?.queue;
  const t = state.value, tab = query.tab ?? "records";
  if (!t) return html`<h1><${Name}>${topic}<//></h1><${Problem} error=${state.error} />${!state.error && html`<p class="loading">Asking the server…</p>`}`;
  const tabs = TABS.filter(([id]) => t.queue || (id !== "jobs" && id !== "dead"));
  return html`
    <p class="crumbs"><a href=${t.queue ? "#/queues" : "#/topics"}>${t.queue ? "Queues" : "Topics"}</a> /</p>
    <h1><${Name}>${topic}<//> <span class="badge">${t.type}</span> <span class="badge">${t.config.durability}</span> <${Stale} ...${state} /></h1>
    <p class="faint">${counted(t.count, "live record")}, ${size(t.bytes)} · last seq ${number(t.head_seq)} · ${t.last_write_ts ? `last write ${ago(t.last_write_ts)}` : "no write since the server started"} · <a href=${href(["try"], { topic })}>write or read by hand</a></p>
    ${t.queue && html`<${StackedBar} parts=${jobParts(jobs)} />`}
    <nav class="tabs" aria-label="Parts of this topic">${tabs.map(([id, title]) => html`<a href=${href(["topics", topic], { tab: id === "records" ? "" : id })} aria-current=${tab === id ? "page" : undefined}>${title}</a>`)}</nav>
    <${Story} key=${tab === "ledger"} topic=${topic} all=${tab === "ledger"} />
    ${tab === "ledger" ? html`<${Ledger} topic=${topic} />` :
      tab === "settings" ? html`<${Settings} topic=${topic} state=${t} may=${may} onChanged=${state.again} />` :
      tab === "consumers" ? html`<${Consumers} topic=${topic} />` :
      tab === "jobs" && t.queue ? html`<${Held} topic=${topic} query=${query} may=${may} />` :
      tab === "dead" && t.queue ? html`<${DeadLetters} topic=${topic} state=${t} query=${query} may=${may} />` :
      html`<${Records} topic=${topic} state=${t} query=${query} may=${may} />`}`;
}
