// The rule editor: checks as one writes, explains, tests, tries on the past, proposes. The draft is kept in this browser.
import { ask, note } from "./act.js";

const WAIT = 600;
const DRAFT = "vedette-rule";
const STATES = {
  applied: "In force: the controller takes it to the canary.",
  staged: "Built, signed and staged. Signatures are missing before it is in force.",
  commands: "Built. The rest needs keys that are not here.",
  refused: "Refused: nothing was changed.",
};

export const startEditor = (form) => {
  const field = (name) => form.elements[name], value = (name) => field(name).value;
  const place = (id) => document.getElementById(id);
  const element = (tag, text, kind) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (kind) node.className = kind;
    return node;
  };

  const names = ["kind", "path", "text", "tests", "event", "format"];
  const key = DRAFT + ":" + form.dataset.origin;
  const keep = () => {
    try { localStorage.setItem(key, JSON.stringify(Object.fromEntries(names.map((name) => [name, value(name)])))); } catch { note("The draft is too large to be kept in this browser."); }
  };
  // What was written before this script came is the draft; else one of the same origin (a rule's page, or none) is taken up again.
  const lines = (text) => text.replace(/\r\n?/g, "\n");
  const written = ["text", "tests", "event"].some((name) => value(name) !== lines(field(name).defaultValue));
  if (written) keep();
  else try {
    const draft = JSON.parse(localStorage.getItem(key) || "null");
    if (draft) for (const name of names) if (typeof draft[name] === "string") field(name).value = draft[name];
  } catch { localStorage.removeItem(key); }

  const problems = (rows) => {
    const list = element("ul", undefined, "plain-list");
    for (const row of rows) {
      const mine = !row.path || row.path === value("path") || row.path.startsWith("console_rule.");
      const line = row.line ? `line ${row.line}${row.column ? ", column " + row.column : ""}` : "";
      const at = [mine ? "" : row.path, line].filter(Boolean).join(", ");
      const item = element("li");
      item.append(element("span", row.severity, row.severity === "error" ? "bad" : "kind " + (row.severity === "warning" ? "high" : "low")), " ", at ? `${at}: ${row.message}` : row.message);
      if (row.hint) item.append(element("small", row.hint, "note"));
      if (row.line && mine && !row.path.includes("test.yml")) {
        const go = element("button", "Go there", "plain");
        go.type = "button";
        go.addEventListener("click", () => jump(row.line, row.column));
        item.append(" ", go);
      }
      list.append(item);
    }
    return list;
  };
  const jump = (line, column) => {
    const box = field("text"), lines = box.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + Math.max(0, (column || 1) - 1);
    box.focus();
    box.setSelectionRange(at, at + Math.max(1, (lines[line - 1] || "").length - Math.max(0, (column || 1) - 1)));
  };
  const refused = (where, data) => {
    const box = element("div", undefined, "problem");
    box.append(element("b", data.error || "The console refused this."));
    if (data.what_to_do) box.append(element("p", data.what_to_do));
    place(where).replaceChildren(box);
  };
  const rule = () => ({ text: value("text"), kind: value("kind"), tests: value("tests") });
  const files = () => {
    const path = value("path"), files = [{ path, text: value("text") }];
    if (value("tests").trim()) files.push({ path: path.replace(/\.[a-z]+$/, "") + ".test.yml", text: value("tests") });
    return files;
  };

  let asked = 0;
  const lint = async () => {
    const mine = ++asked;
    if (!value("text").trim()) return place("lint").replaceChildren(element("p", "Nothing to check yet.", "soft"));
    const answer = await ask("POST", "/api/v1/rules/lint", rule());
    if (mine !== asked) return;
    if (!answer.ok) return refused("lint", answer.data);
    const { problems: faults, runs, summary, stopped } = answer.data;
    const head = element("p", stopped || (runs ? summary || "It runs." : "It does not run yet."), runs && !stopped ? "said" : "problem");
    place("lint").replaceChildren(head, problems(faults));
  };

  const acts = {
    explain: async () => {
      const answer = await ask("POST", "/api/v1/rules/explain", { ...rule(), event: value("event"), format: value("format") });
      if (!answer.ok) return refused("explained", answer.data);
      const { lines, matches, problems: faults, stopped } = answer.data;
      const head = stopped || (matches === null ? "It did not come to that." : matches ? "It matches." : "It does not match.");
      const text = element("pre", lines.join("\n"));
      text.tabIndex = 0;
      place("explained").replaceChildren(element("p", head, matches ? "said" : matches === null ? "soft" : "said not"), problems(faults), text);
    },
    test: async () => {
      const answer = await ask("POST", "/api/v1/rules/test", rule());
      if (!answer.ok) return refused("tested", answer.data);
      const { ok, events, sequences, problems: faults, failures, stopped } = answer.data;
      const list = element("ul", undefined, "plain-list");
      for (const failure of failures) {
        const item = element("li");
        item.append(element("span", failure.ok ? "passed" : "failed", failure.ok ? "kind low" : "bad"), " ", failure.name, element("small", failure.detail, "note"));
        list.append(item);
      }
      const head = stopped || `${events} test events, ${sequences} sequences: ${ok ? "all as they should be." : "not as they should be."}`;
      place("tested").replaceChildren(element("p", head, ok ? "said" : "problem"), problems(faults), list);
    },
    backtest: async () => {
      const answer = await ask("POST", "/api/v1/backtests", { rules: files(), since: value("since"), reason: value("try_reason") });
      if (!answer.ok) return refused("tried", answer.data);
      location.href = "/backtests/" + encodeURIComponent(answer.data.id ?? answer.data.backtest.id);
    },
    hunt: async () => {
      if (!value("try_reason").trim()) return field("try_reason").focus();
      const body = { rules: files(), group: value("hunt_group"), since: value("since"), reason: value("try_reason") };
      const answer = await ask("POST", "/api/v1/hunts", body);
      if (!answer.ok) return refused("tried", answer.data);
      location.href = "/hunts/" + encodeURIComponent(answer.data.id ?? answer.data.hunt.id);
    },
    propose: async () => {
      if (!value("reason").trim()) return field("reason").focus();
      const body = { rules: files(), group: value("group"), ruleset: value("ruleset"), reason: value("reason") };
      const answer = await ask("POST", "/api/v1/rollouts/propose", body);
      if (!answer.ok) return refused("proposed", answer.data);
      await follow(answer.data);
    },
  };
  // A build takes a while: asked for until it is over.
  const follow = async (proposal) => {
    while (proposal.state === "building") {
      place("proposed").replaceChildren(element("p", "The bundle is being built.", "soft"));
      await new Promise((done) => setTimeout(done, 1500));
      const answer = await ask("GET", "/api/v1/rollouts/proposals/" + encodeURIComponent(proposal.id));
      if (!answer.ok) return refused("proposed", answer.data);
      proposal = answer.data;
    }
    const shown = [element("p", STATES[proposal.state] || proposal.state, proposal.state === "refused" ? "problem" : "said")];
    if (proposal.summary) shown.push(element("p", proposal.summary, "note"));
    shown.push(problems(proposal.problems || []));
    if ((proposal.commands || []).length) {
      const text = element("pre", proposal.commands.join("\n"));
      text.tabIndex = 0;
      shown.push(element("p", "Run, where the keys are:"), text);
    }
    for (const change of proposal.changes || []) {
      const link = element("a", "Watch the roll-out", "button");
      link.href = "/rollouts/" + encodeURIComponent(change);
      shown.push(link);
    }
    place("proposed").replaceChildren(...shown);
  };

  let timer = 0;
  form.addEventListener("input", (event) => {
    keep();
    if (["text", "kind"].includes(event.target.name)) { clearTimeout(timer); timer = setTimeout(lint, WAIT); }
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-do]");
    if (!button) return;
    button.setAttribute("aria-busy", "true");
    await acts[button.dataset.do]();
    button.removeAttribute("aria-busy");
  });
  // Tab indents in code, after Escape it leaves the field.
  let leave = false;
  form.addEventListener("keydown", (event) => {
    if (!event.target.matches("textarea.code")) return;
    if (event.key === "Escape") { leave = true; event.preventDefault(); return; }
    if (event.key === "Tab" && !leave && !event.shiftKey) { event.preventDefault(); event.target.setRangeText("  ", event.target.selectionStart, event.target.selectionEnd, "end"); }
    leave = false;
  });
  lint();
};
