// Acts: a form with data-act="METHOD /path" is sent to the API as JSON; what the API says stands beside the control.
// data-then: "reload", "go /path/{field}" ({field} of the answer), "show SELECTOR" (the answer as text), "follow PATH SELECTOR"
// (a question's answer as it comes), or a note.

const token = () => document.querySelector('meta[name="csrf"]').content;

export const note = (text) => {
  const line = document.createElement("p");
  line.textContent = text;
  document.getElementById("notes").append(line);
  setTimeout(() => line.remove(), 6000);
};

export const ask = async (method, path, body) => {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: { "Content-Type": "application/json", "X-CSRF-Token": token(), Accept: "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    return { ok: false, data: { error: "The console does not answer.", what_to_do: "Is it running? Try again." } };
  }
  const data = await answer.json().catch(() => ({}));
  if (answer.status === 401 && !location.pathname.startsWith("/login")) {
    location.href = "/login?next=" + encodeURIComponent(location.pathname + location.search);
  }
  return { ok: answer.ok, status: answer.status, data };
};

// A field's value in JSON: data-as "list" (words or lines), "number", "json", "bool"; an empty one that is data-optional is left out.
const value = (field, text) => {
  const kind = field && field.dataset ? field.dataset.as : undefined;
  if (kind === "list") return text.split(/[\s,]+/).filter(Boolean);
  if (kind === "number") return Number(text);
  if (kind === "json") return JSON.parse(text);
  return text;
};

// "analyst plants/vienna", one line of a user's roles.
const grant = (line) => {
  const [role, place = "*/*"] = line.trim().split(/\s+/), [fleet, site = "*"] = place.split("/");
  return { role, fleet, site };
};

export const fields = (form, submitter) => {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || field.type === "submit" || field.type === "button") continue;
    if (field.type === "checkbox" && field.dataset.as === "bool") { body[field.name] = field.checked; continue; }
    if ((field.type === "checkbox" || field.type === "radio") && !field.checked) continue;
    if (field.value === "" && "optional" in field.dataset) continue;
    const path = field.name.split(".");
    let at = body;
    for (const part of path.slice(0, -1)) at = at[part] ??= {};
    const last = path.at(-1);
    if (field.dataset.many !== undefined) (at[last] ??= []).push(value(field, field.value));
    else at[last] = value(field, field.value);
  }
  const rule = form.querySelector("[data-rule]");
  if (rule) body.rules = [{ path: `${form.dataset.ruleFile}.${form.querySelector("[data-kind]").value}`, text: rule.value }];
  const grants = form.querySelector("[data-grants-text]");
  if (grants) body.grants = grants.value.split("\n").filter((line) => line.trim()).map(grant);
  if (submitter && submitter.name) body[submitter.name] = submitter.value;
  return body;
};

export const clear = (form) => {
  for (const old of form.querySelectorAll(".problem, .said")) old.remove();
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-describedby");
  }
};

let numbers = 0;
const said = (data) => {
  if (typeof data.error === "string") return data;
  if (Array.isArray(data.detail)) {
    const first = data.detail[0] || {};
    return { error: first.msg || "This is not accepted.", where: (first.loc || []).at(-1) };
  }
  return { error: typeof data.detail === "string" ? data.detail : "The console refused this." };
};

// The answer's problem, beside the field that it names, else at the form's end.
export const complain = (form, data) => {
  const { error, where, what_to_do: hint } = said(data);
  const box = document.createElement("div");
  box.className = "problem";
  box.id = "problem-" + ++numbers;
  box.setAttribute("role", "alert");
  const bold = document.createElement("b");
  bold.textContent = error;
  box.append(bold);
  const named = [...form.elements].find((field) => field.name && field.name === where);
  if (where && !named) box.append(` (${where})`);
  if (hint) {
    const more = document.createElement("p");
    more.textContent = hint;
    box.append(more);
  }
  if (named) {
    named.setAttribute("aria-invalid", "true");
    named.setAttribute("aria-describedby", box.id);
    named.after(box);
    named.focus();
  } else form.append(box);
};

const filled = (text, data) => text.replace(/\{([a-z_.]+)\}/g, (_, name) => encodeURIComponent(name.split(".").reduce((at, key) => at?.[key], data) ?? ""));

// A question to hosts is answered in time: asked for again until it is over, what came so far stands in ``place``.
const OVER = ["done", "cancelled", "expired"];
const follow = async (path, place) => {
  place.hidden = false;
  for (let wait = 1000; ; wait = Math.min(wait * 1.3, 15000)) {
    const answer = await ask("GET", path);
    if (!answer.ok) { place.textContent = answer.data.error || "The console does not say."; return; }
    const { job, agents, records } = answer.data;
    const heads = [`${job.title}: ${job.state}${job.why ? ", " + job.why : ""}`, ...agents.map((agent) => `${agent.agent}: ${agent.state} ${agent.reason}`)];
    place.textContent = [...heads, ...Object.values(records).flat().map((record) => JSON.stringify(record, null, 2))].join("\n");
    if (OVER.includes(job.state)) return;
    await new Promise((done) => setTimeout(done, wait));
  }
};

const then = (form, data) => {
  const [what, ...rest] = (form.dataset.then || "").split(" "), more = rest.join(" ");
  if (what === "reload") return location.reload();
  if (what === "go") { location.href = filled(more, data); return; }
  if (what === "show") {
    const place = document.querySelector(more);
    place.hidden = false;
    place.textContent = data[form.dataset.show] || JSON.stringify(data, null, 2);
    return place.focus();
  }
  if (what === "follow") return follow(filled(rest[0], data), document.querySelector(rest[1]));
  const line = document.createElement("p");
  line.className = "said";
  line.setAttribute("role", "status");
  line.textContent = data.said || form.dataset.said || "Done.";
  form.append(line);
};

export const send = async (form, submitter) => {
  const [method, path] = (submitter?.dataset.act || form.dataset.act).split(" ");
  clear(form);
  if (submitter) submitter.setAttribute("aria-busy", "true");
  let body;
  try {
    body = fields(form, submitter);
  } catch {
    complain(form, { error: "This is not JSON.", what_to_do: "Check quotes, commas and brackets." });
    submitter?.removeAttribute("aria-busy");
    return null;
  }
  const answer = await ask(method, path, ["DELETE", "GET"].includes(method) ? undefined : body);
  if (submitter) submitter.removeAttribute("aria-busy");
  if (answer.ok) delete form.dataset.dirty;
  form.dispatchEvent(new CustomEvent("answered", { detail: answer }));
  if (!answer.ok) complain(form, answer.data);
  else if (form.dataset.then !== "event") then(form, answer.data);
  return answer;
};

// A field with data-when="state=assigned" is there only while the field "state" of its form has that value.
const fit = (form) => {
  for (const place of form.querySelectorAll("[data-when]")) {
    const [name, wanted] = place.dataset.when.split("=");
    place.hidden = form.elements[name].value !== wanted;
    for (const field of place.querySelectorAll("input, select, textarea")) field.disabled = place.hidden;
  }
};

export const startActs = () => {
  for (const form of document.querySelectorAll("form")) if (form.querySelector("[data-when]")) fit(form);
  // What somebody has begun to write in a live part stays until it is sent.
  addEventListener("input", (event) => { const form = event.target.form; if (form?.dataset.act) form.dataset.dirty = "1"; });
  addEventListener("change", (event) => { if (event.target.form?.querySelector("[data-when]")) fit(event.target.form); });
  addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.act && !event.submitter?.dataset.act) return;
    event.preventDefault();
    if (form.dataset.sure && !confirmed(form)) return;
    send(form, event.submitter);
  });
  addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard?.writeText(document.querySelector(button.dataset.copy).textContent).then(() => note("Copied."));
  });
};

// An act that cannot be taken back is pressed twice: the first press says what it does.
const confirmed = (form) => {
  if (form.dataset.pressed) return true;
  form.dataset.pressed = "1";
  note(form.dataset.sure);
  setTimeout(() => delete form.dataset.pressed, 6000);
  return false;
};
