// The frame around every page: navigation, the key, and whether the server is there.

import { Actions } from "./actions.js";
import { get, hasKey, setKey } from "./api.js";
import { Overview } from "./overview.js";
import { Routers } from "./routers.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";
import { TryIt } from "./try.js";
import { href, html, moment, render, useEffect, useLink, usePoll, useRef, useRoute, useState } from "./ui.js";

const PAGES = [["", "Overview"], ["topics", "Topics"], ["queues", "Queues"], ["routers", "Routers"], ["try", "Try it"], ["actions", "Actions"]];

function KeyBox({ me, onChange }) {
  const [open, setOpen] = useState(false), [keep, setKeep] = useState(false);
  const field = useRef(null);
  useEffect(() => { if (open) field.current?.focus(); }, [open]);
  const save = (event) => { event.preventDefault(); setKey(field.current.value.trim(), { keep }); setOpen(false); onChange(); };
  if (me && !me.auth) return html`<span class="faint">no keys: open to this machine</span>`;
  const may = me ? `${me.scopes.join(" + ")}${me.prefixes.length ? ` on ${me.prefixes.map((p) => p + "*").join(", ")}` : ""}` : "";
  return html`<div class="keybox">
    ${me ? html`<span class="badge">${may}</span>` : null}
    <button type="button" class="quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>${hasKey() ? "Key…" : "Give a key"}</button>
    ${open && html`<form class="popup" onSubmit=${save}>
      <label>Key <input ref=${field} type="password" autocomplete="off" /></label>
      <label class="inline"><input type="checkbox" checked=${keep} onChange=${(e) => setKeep(e.target.checked)} /> keep it in this browser</label>
      <p class="faint">Otherwise the key is forgotten with this tab.</p>
      <p class="buttons"><button type="button" onClick=${() => { setKey(""); setOpen(false); onChange(); }}>Forget</button><button class="primary">Use it</button></p>
    </form>`}
  </div>`;
}

function Shell() {
  const { parts, query } = useRoute();
  const there = useLink();
  const me = usePoll((signal) => get("/v0/key", { signal }), 60000, []);
  const page = parts[0] ?? "";
  const may = (scope) => Boolean(me.value?.scopes.includes(scope)); // nothing to press until the server has said what the key may
  const content = useRef(null);
  useEffect(() => { document.title = [...parts].reverse().concat("topics").join(" · "); }, [parts.join("/")]);
  const key = parts.join("/");
  useEffect(() => { // "/" goes to the first field of the page, as in other tools.
    const keys = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      const field = content.current?.querySelector("input:not([type=checkbox])");
      if (field) { event.preventDefault(); field.focus(); }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  return html`
    <a class="skip" href="#content" onClick=${(e) => { e.preventDefault(); content.current.focus(); }}>Skip to the content</a>
    <header>
      <a class="home" href="#/"><img src="icon.svg" alt="" width="22" height="22" />topics</a>
      <nav aria-label="Pages">${PAGES.map(([path, title]) => html`<a href=${href(path ? [path] : [])} aria-current=${page === path ? "page" : undefined}>${title}</a>`)}</nav>
      <${KeyBox} me=${me.value} onChange=${() => me.again()} />
    </header>
    ${there.since !== null && html`<div class="away" role="status">The server has not answered since ${moment(there.since).slice(11, 19)}. What you see is older than that; the console keeps trying.</div>`}
    <main id="content" ref=${content} tabindex="-1">
      ${me.error?.status === 401 ? html`<section class="card"><h1>This server needs a key</h1><p>Give one at the top right. A key with the scope <code>read</code> is enough to look around.</p></section>` :
        page === "" ? html`<${Overview} />` :
        page === "topics" && parts[1] ? html`<${Topic} key=${key} topic=${parts[1]} query=${query} may=${may} />` :
        page === "topics" ? html`<${Topics} query=${query} may=${may} />` :
        page === "queues" ? html`<${Topics} query=${query} may=${may} queues=${true} />` :
        page === "routers" ? html`<${Routers} query=${query} />` :
        page === "actions" ? html`<${Actions} />` :
        page === "try" ? html`<${TryIt} query=${query} may=${may} />` :
        html`<section class="card"><h1>No such page</h1><p><a href="#/">Back to the overview</a></p></section>`}
    </main>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Shell} />`, root);
