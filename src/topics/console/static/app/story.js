// The sentences of `topics explain`: what happened to a topic, since when, and what helps.

import { get, name } from "./api.js";
import { visible } from "./json.js";
import { Copy, When, html, usePoll, useState } from "./ui.js";

export const useStory = (topic) => usePoll((signal) => get(`/v0/topics/${name(topic)}/explain`, { signal }), 10000, [topic]);

const tone = (weight) => (weight >= 8 ? "bad" : weight >= 2 ? "warn" : "calm");

const Finding = ({ found }) => html`<li class=${"finding " + tone(found.weight)}>
  <p>${visible(found.what)}${found.since_ms ? html` <span class="faint">${found.word} <${When} ms=${found.since_ms} /></span>` : ""}</p>
  ${found.command && html`<p class="helps"><span class="faint">What helps:</span> <code>${visible(found.command)}</code> <${Copy} text=${found.command} /></p>`}
</li>`;

export function Story({ topic, all = false }) {
  const story = useStory(topic), [more, setMore] = useState(false);
  const found = (story.value?.findings ?? []).filter((f) => all || f.weight >= 2);
  if (!found.length) return null;
  const shown = all || more ? found : found.slice(0, 1);
  return html`<section class="card story" aria-label="What happened here">
    ${all && html`<h2>What happened here</h2><p>${visible(story.value.opening)}</p>`}
    <ul>${shown.map((f) => html`<${Finding} found=${f} />`)}</ul>
    ${found.length > shown.length && html`<button type="button" class="quiet" aria-expanded="false" onClick=${() => setMore(true)}>${found.length - 1} more</button>`}
  </section>`;
}
