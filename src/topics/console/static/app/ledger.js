// The ledger: where every seq of a topic went, as a picture that adds up.

import { get, name } from "./api.js";
import { LOSSES } from "./records.js";
import { Problem, Stale, StackedBar, href, html, number, usePoll } from "./ui.js";

export function Ledger({ topic }) {
  const audit = usePoll((signal) => get(`/v0/topics/${name(topic)}/audit`, { signal }), 5000, [topic]);
  const a = audit.value;
  if (!a) return html`<${Problem} error=${audit.error} />`;
  const parts = [
    { name: "live", value: a.live, kind: "live" }, { name: "deleted on purpose", value: a.deleted, kind: "deleted" },
    { name: "lost to a cap", value: a.lost_cap, kind: "lost" }, { name: "expired", value: a.lost_ttl, kind: "ttl" },
    { name: "lost in a crash", value: a.lost_crash, kind: "crash" }, { name: "lost before a router copied it", value: a.source_trim, kind: "trim" },
    { name: "never used", value: a.skipped, kind: "skipped" },
  ];
  const sum = parts.reduce((total, part) => total + part.value, 0);
  return html`<section class="card"><h2>Where every seq went <${Stale} ...${audit} /></h2>
    <${StackedBar} parts=${parts} />
    <p class=${sum === a.head_seq ? "good" : "problem"}>${parts.filter((p) => p.value).map((p) => `${number(p.value)} ${p.name}`).join(" + ") || "0"} = ${number(sum)}. The last seq is ${number(a.head_seq)}: the ledger ${sum === a.head_seq ? "adds up" : "does not add up"}.</p>
    <table class="list"><caption class="unseen">The ledger of ${topic}</caption><tbody>${parts.map((p) => html`<tr><th scope="row">${p.name}</th><td class="n">${number(p.value)}</td></tr>`)}<tr><th scope="row">last seq</th><td class="n">${number(a.head_seq)}</td></tr></tbody></table>
    ${a.evict_floor > 1 && html`<p>Seqs below ${number(a.evict_floor)} that were not deleted were lost to a cap or expired. A reader that had not read them is told so.</p>`}
    ${a.gaps.length > 0 && html`<h2>Gaps</h2><div class="scroll"><table class="list"><thead><tr><th scope="col">Seqs</th><th scope="col" class="n">Records</th><th scope="col">Cause</th></tr></thead><tbody>${a.gaps.slice().reverse().map((g) => html`<tr><td><a href=${href(["topics", topic], { seq: g.gap_to })}>${number(g.gap_from)} to ${number(g.gap_to)}</a></td><td class="n">${number(g.gap_to - g.gap_from + 1)}</td><td>${LOSSES[g.cause] ?? g.cause}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}
