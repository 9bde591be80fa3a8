// Append a record and read it back; the same as curl, Python and command to copy.

import { call, hasKey, name } from "./api.js";
import { visible } from "./json.js";
import { Copy, Problem, html, quote, setQuery, useState } from "./ui.js";

export function TryIt({ query, may }) {
  const topic = query.topic ?? "try-it", [data, setData] = useState('{"hello": "world"}'), [tag, setTag] = useState("");
  const [answer, setAnswer] = useState(null), [error, setError] = useState(null);
  const path = `/v0/topics/${name(topic)}`, origin = location.origin;
  const write = `{"records":[{"data":${data}${tag ? `,"tag":${JSON.stringify(tag)}` : ""}}]}`;
  const ask = async (event, where, body) => {
    event.preventDefault();
    setError(null);
    try { setAnswer(await call("POST", where, body)); } catch (failed) { setError(failed); setAnswer(null); }
  };
  const shell = (text) => `'${text.replace(/'/g, `'\\''`)}'`, string = (text) => visible(JSON.stringify(text));
  const given = `${hasKey() ? `-H "authorization: Bearer $TOPICS_TOKEN" ` : ""}-H 'content-type: application/json'`;
  const samples = {
    curl: `curl -X POST ${origin}${path} ${given} -d ${shell(write)}\ncurl -X POST ${origin}${path}/diff ${given} -d '{"from_seq":0,"limit":10}'`,
    Python: `import ${hasKey() ? "os, " : ""}topics\n\nlog = topics.open(${JSON.stringify(origin)}${hasKey() ? `, token=os.environ["TOPICS_TOKEN"]` : ""})\nlog.append(${string(topic)}, [{"data": ${string(data)}.encode()${tag ? `, "tag": ${string(tag)}` : ""}}])\nprint(log.read(${string(topic)}, after=0, limit=10).records)`,
    command: `topics produce ${quote(topic)} --url ${origin} --as json${tag ? ` --tag ${quote(tag)}` : ""} -m ${shell(data)}\ntopics read ${quote(topic)} --url ${origin}`,
  };
  return html`<h1>Try it</h1>
    <form class="card" onSubmit=${(e) => ask(e, path, write)}>
      <label>Topic <input required value=${topic} onInput=${(e) => setQuery({ topic: e.target.value })} /></label>
      <label>Data, any JSON <textarea rows="4" spellcheck="false" value=${data} onInput=${(e) => setData(e.target.value)}></textarea></label>
      <label>Tag <input value=${tag} placeholder="none" onInput=${(e) => setTag(e.target.value)} /></label>
      <p class="buttons">${may("write") && html`<button class="primary">Append</button>`}<button type="button" onClick=${(e) => ask(e, `${path}/diff`, '{"from_seq":0,"limit":10,"include_tags":true}')}>Read the first ten</button></p>
      <${Problem} error=${error} />
      ${answer && html`<pre class="json" role="status">${JSON.stringify(answer, (key, value) => (value && value.text !== undefined ? value.text : value), 1)}</pre>`}
    </form>
    ${hasKey() && html`<p class="faint">These take the key from the variable <code>TOPICS_TOKEN</code>.</p>`}
    ${Object.entries(samples).map(([what, text]) => html`<section class="card"><h2>The same as ${what} <${Copy} text=${text} /></h2><pre>${text}</pre></section>`)}`;
}
