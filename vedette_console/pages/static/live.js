// Live parts: one stream of events a page; a part with data-live="alerts fleet" is asked for again by htmx after such an event.
// The stream is closed while the page is hidden: a browser has six connections to one console for all its tabs.
// A part in which somebody types or has opened something waits until they are done.
import { startTables } from "./table.js";

const STREAM = "/api/v1/events";
const AT_MOST_EVERY = 3000;
const LONGEST_WAIT = 60000;

export const startLive = () => {
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const sign = document.querySelector(".live");
  if (!sign) return;
  const say = (state, text) => { sign.dataset.state = state; sign.querySelector("span").textContent = text; };

  const busy = (part) => {
    const on = document.activeElement;
    return (on && part.contains(on) && /^(INPUT|TEXTAREA|SELECT)$/.test(on.tagName)) || part.querySelector("details[open], [data-dirty]");
  };
  const waiting = new Set();
  let last = 0, timer = 0;
  const renew = () => {
    timer = 0;
    last = Date.now();
    for (const id of [...waiting]) {
      const part = document.getElementById(id);
      if (part && busy(part)) continue;
      waiting.delete(id);
      if (part) htmx.ajax("GET", location.pathname + location.search, { source: part, target: "#" + id, select: "#" + id, swap: "outerHTML" });
    }
    if (waiting.size) timer = setTimeout(renew, AT_MOST_EVERY);
  };
  const happened = (kind) => {
    for (const part of parts()) if (part.dataset.live.split(" ").includes(kind)) waiting.add(part.id);
    if (waiting.size && !timer) timer = setTimeout(renew, Math.max(0, last + AT_MOST_EVERY - Date.now()));
  };

  let stream = null, pause = 1000, again = 0;
  const open = () => {
    if (stream || document.hidden) return;
    stream = new EventSource(STREAM);
    stream.onopen = () => { pause = 1000; say("live", "live"); };
    stream.onerror = () => {
      close();
      say("lost", "not live, trying again");
      again = setTimeout(open, pause * (0.5 + Math.random()));
      pause = Math.min(pause * 2, LONGEST_WAIT);
    };
    stream.addEventListener("missed", () => { for (const part of parts()) waiting.add(part.id); renew(); });
    for (const kind of ["now", "alerts", "fleet", "rollouts", "jobs"]) stream.addEventListener(kind, () => happened(kind));
  };
  const close = () => { stream?.close(); stream = null; clearTimeout(again); };
  if (parts().length) open();
  else say("", "not live");
  document.addEventListener("visibilitychange", () => {
    if (!parts().length) return;
    if (document.hidden) { close(); say("", "paused"); } else { for (const part of parts()) waiting.add(part.id); renew(); open(); }
  });
  addEventListener("pagehide", close);

  // What is swapped in keeps the chosen row. Several parts may be swapped at once.
  let chosen = "";
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status === 401) location.reload();
    chosen = document.querySelector("[data-row].on")?.dataset.row || chosen;
  });
  document.body.addEventListener("htmx:afterSettle", (event) => {
    startTables(event.detail.elt.parentNode || document);
    if (!chosen || document.querySelector("[data-row].on")) return; // another part's rows, or another was chosen meanwhile
    const row = [...document.querySelectorAll("[data-row]")].find((candidate) => candidate.dataset.row === chosen);
    if (row) row.classList.add("on");
  });
};
