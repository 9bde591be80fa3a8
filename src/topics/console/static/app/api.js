// Calls of the `/v0` API. Whatever this file sends, a user can send with curl.

import { parse } from "./json.js";

const KEPT = "topics-key";
let key = sessionStorage.getItem(KEPT) ?? localStorage.getItem(KEPT) ?? "";

export function setKey(given, { keep = false } = {}) {
  key = given;
  sessionStorage.removeItem(KEPT);
  localStorage.removeItem(KEPT);
  if (given) (keep ? localStorage : sessionStorage).setItem(KEPT, given);
  for (const tell of listeners) tell();
}
export const hasKey = () => key !== "";

// Whether the server answers: `since` is when it stopped, or null.
export const link = { since: null, last: null };
const listeners = new Set();
export function onLink(tell) { listeners.add(tell); return () => listeners.delete(tell); }
function answered(isThere) {
  const was = link.since;
  if (isThere) { link.since = null; link.last = Date.now(); }
  else if (link.since === null) link.since = Date.now();
  if (was !== link.since) for (const tell of listeners) tell();
}

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.detail = error.detail ?? {};
  }
}

export async function call(method, path, body, { signal, accept, cache = "no-store" } = {}) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    response = await fetch(path, { method, headers, body: text, signal, cache });
  } catch (error) {
    if (error.name !== "AbortError") answered(false);
    throw error;
  }
  const text = await response.text();
  answered(response.status !== 503 || !text.includes("shutting_down"));
  let made;
  try { made = text === "" ? {} : parse(text); } catch { made = null; }
  if (!response.ok) {
    throw new ApiError(response.status, made?.error ?? { code: "unknown", message: `the server answered ${response.status}` });
  }
  return made;
}

export const get = (path, options) => call("GET", path, undefined, options);
// The snapshot that the server keeps: the browser asks whether it changed, mostly it did not.
export const getHistory = (signal) => get("/v0/history", { signal, cache: "no-cache" });
export const post = (path, body, options) => call("POST", path, body, options);
export const put = (path, body, options) => call("PUT", path, body, options);
export const name = encodeURIComponent;

// A live tail. Calls `onEvent(kind, value)` until `stop()`. A stream that ends is opened again from
// the last position; only a key that is refused or a topic that is gone ends the tail for good.
export function follow(topic, fromSeq, onEvent) {
  const stopper = new AbortController();
  let from = fromSeq;
  const pause = (ms) => new Promise((wake) => {
    const timer = setTimeout(wake, ms);
    stopper.signal.addEventListener("abort", () => { clearTimeout(timer); wake(); });
  });
  async function once() {
    const made = await post("/v0/watch", { topics: { [topic]: from === null ? { tail: true } : { from_seq: from } }, include_tags: true, limit: 256 }, { signal: stopper.signal });
    from = made.topics[topic].from_seq;
    const headers = { Accept: "text/event-stream" };
    if (key) headers.Authorization = `Bearer ${key}`;
    const response = await fetch(made.stream_url, { headers, signal: stopper.signal, cache: "no-store" });
    if (!response.ok) throw new Error(`the stream answered ${response.status}`);
    answered(true);
    onEvent("open", { from_seq: from });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const lines = frame.split("\n");
        const event = lines.find((line) => line.startsWith("event: "))?.slice(7);
        const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
        if (!event || !data) continue;
        const said = parse(data);
        if (event === "record") from = said.to_seq;
        if (event === "tombstone") from = said.gap_to;
        onEvent(event, said);
      }
    }
  }
  (async () => {
    for (let wait = 250; !stopper.signal.aborted; wait = Math.min(wait * 2, 5000)) {
      const began = Date.now();
      try { await once(); } catch (error) {
        if (stopper.signal.aborted) return;
        if (error instanceof ApiError && [401, 403, 404].includes(error.status)) { onEvent("ended", error); return; }
        if (!(error instanceof ApiError)) answered(false);
      }
      if (stopper.signal.aborted) return;
      if (Date.now() - began > 5000) wait = 250;
      onEvent("lost", {});
      await pause(wait);
    }
  })();
  return () => stopper.abort();
}
