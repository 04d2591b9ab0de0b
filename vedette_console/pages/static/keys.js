// Keyboard: "/" search, "j" "k" rows, Enter open, "g" and a letter goes, "?" help. Off by the cookie keys=off.
import { cookie } from "./prefs.js";

const rows = () => [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
const typing = (target) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
const here = () => document.querySelector("main [data-row].on");

const choose = (row) => {
  here()?.classList.remove("on");
  row.classList.add("on");
  row.scrollIntoView({ block: "nearest" });
  row.querySelector("a.cover, a")?.focus({ preventScroll: true });
};

const move = (step) => {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(here());
  choose(all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)]);
};

const search = () => {
  const box = document.querySelector("main [data-search], main input[type=search]");
  if (box) { box.focus(); box.select(); } else location.href = "/alerts#search";
};

const click = (selector) => document.querySelector(selector)?.click();
const focus = (selector) => document.querySelector(selector)?.focus();

const ACTS = {
  "/": search,
  j: () => move(1),
  k: () => move(-1),
  o: () => here()?.querySelector("a.cover, a")?.click(),
  "?": () => document.getElementById("help").showModal(),
  t: () => focus("form[data-key=t] select, form[data-key=t] input, form[data-key=t] textarea"),
  e: () => focus("form[data-key=e] input, form[data-key=e] textarea"),
  n: () => click("a[rel=next]"),
  p: () => click("a[rel=prev]"),
};

export const startKeys = () => {
  const menu = document.querySelector(".menu");
  menu?.addEventListener("click", () => {
    const side = document.querySelector(".side"), open = side.toggleAttribute("data-open");
    menu.setAttribute("aria-expanded", String(open));
  });
  document.querySelector("#help form")?.addEventListener("submit", () => document.getElementById("help").close());
  for (const button of document.querySelectorAll("[data-open-help]")) button.addEventListener("click", ACTS["?"]);
  if (location.hash === "#search") search();
  if (cookie("keys") === "off") return;

  const places = Object.fromEntries([...document.querySelectorAll("nav [data-go]")].map((link) => [link.dataset.go, link]));
  let going = 0;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && typing(event.target) && !event.defaultPrevented) return event.target.blur();
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    if (Date.now() - going < 1500) {
      going = 0;
      if (places[event.key]) { event.preventDefault(); return places[event.key].click(); }
    }
    if (event.key === "g") { going = Date.now(); return; }
    if (event.key === "Enter" && event.target === document.body && here()) return ACTS.o();
    const act = ACTS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
};
