// The search box completes fields and values as the API knows them (a combobox, as WAI-ARIA describes it).
import { clear, complain } from "./act.js";

const WAIT = 150;

export const startComplete = (form) => {
  const box = form.querySelector("[data-search]"), list = form.querySelector(".choices");
  let choices = [], chosen = -1, timer = 0, asked = 0, place = 0;

  const show = () => {
    list.replaceChildren(...choices.map((choice, i) => {
      const item = document.createElement("li"), text = document.createElement("span"), more = document.createElement("small");
      item.role = "option";
      item.id = "choice-" + i;
      text.textContent = choice.text;
      more.textContent = choice.label === choice.text ? "" : choice.label;
      item.append(text, more);
      item.setAttribute("aria-selected", String(i === chosen));
      item.addEventListener("mousedown", (event) => { event.preventDefault(); chosen = i; take(); });
      return item;
    }));
    list.hidden = !choices.length;
    box.setAttribute("aria-expanded", String(!list.hidden));
    if (chosen >= 0) { box.setAttribute("aria-activedescendant", "choice-" + chosen); list.children[chosen].scrollIntoView({ block: "nearest" }); } else box.removeAttribute("aria-activedescendant");
  };
  const hide = () => { choices = []; chosen = -1; show(); };
  const take = () => {
    const choice = choices[chosen];
    if (!choice) return;
    // What was typed since the choices were asked for belongs to the word that is replaced.
    box.setRangeText(choice.text, choice.start, Math.max(choice.end, choice.end + box.selectionStart - place), "end");
    asked += 1;
    clearTimeout(timer);
    hide();
    if (choice.text.endsWith(":")) look();
  };
  const look = async () => {
    const mine = ++asked, at = box.selectionStart;
    const answer = await fetch(`${form.dataset.complete}?q=${encodeURIComponent(box.value)}&at=${at}`, { credentials: "same-origin" }).catch(() => null);
    if (!answer || !answer.ok || mine !== asked || document.activeElement !== box) return;
    const data = await answer.json();
    choices = (data.items || []).slice(0, 20);
    place = at;
    chosen = -1;
    show();
  };
  box.addEventListener("input", () => { clear(form); clearTimeout(timer); timer = setTimeout(look, WAIT); });
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && !choices.length) return look();
    if (!choices.length) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); chosen = (chosen + step + choices.length) % choices.length; show(); }
    else if (event.key === "Escape") { event.preventDefault(); hide(); }
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) { event.preventDefault(); take(); }
  });
  if (document.activeElement === box && box.value !== box.defaultValue) look(); // typed before this script came
  const wrong = form.dataset.problem;
  if (wrong) complain(form, JSON.parse(wrong));
};
