// What this tab changed, with the command that does the same. Kept with the tab, never sent anywhere.

import { Copy, When, html, useEffect, useState } from "./ui.js";

const KEPT = "topics-actions", MOST = 200;
const changed = new EventTarget();

export function actions() {
  try { return JSON.parse(sessionStorage.getItem(KEPT) ?? "[]"); } catch { return []; }
}

export function note(what, command, outcome = "done") {
  const all = [{ at: Date.now(), what, command, outcome }, ...actions()].slice(0, MOST);
  try { sessionStorage.setItem(KEPT, JSON.stringify(all)); } catch { /* a full store only costs the list */ }
  changed.dispatchEvent(new Event("change"));
}

export function Actions() {
  const [, redraw] = useState(0);
  useEffect(() => { const tell = () => redraw((n) => n + 1); changed.addEventListener("change", tell); return () => changed.removeEventListener("change", tell); }, []);
  const all = actions();
  return html`<h1>Actions</h1>
    <p class="faint">What you changed in this tab, newest first. The list ends with the tab. The server's access log has every request of everybody.</p>
    ${all.length === 0 ? html`<section class="card"><p class="faint">Nothing was changed from this tab yet.</p></section>` : html`<div class="scroll"><table class="list"><thead><tr><th scope="col">Time</th><th scope="col">What</th><th scope="col">Outcome</th><th scope="col">The same as a command</th></tr></thead>
      <tbody>${all.map((a) => html`<tr><td class="ts"><${When} ms=${a.at} /></td><td>${a.what}</td><td>${a.outcome}</td><td class="wrap">${a.command && html`<code>${a.command.slice(0, 400)}${a.command.length > 400 ? "…" : ""}</code> <${Copy} text=${a.command} />`}</td></tr>`)}</tbody></table></div>`}`;
}
