// What every page does: preferences, keys, acts, live parts, tables. Pages are readable without it; acts need it.
import { startActs } from "./act.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startPrefs } from "./prefs.js";
import { startTables } from "./table.js";

startPrefs();
startKeys();
startActs();
startTables(document);
startLive();

// Folded on a phone, beside the list elsewhere.
if (matchMedia("(min-width: 60.01rem)").matches) for (const part of document.querySelectorAll("details.folded")) part.open = true;

const only = (selector, path, start) => {
  for (const place of document.querySelectorAll(selector)) import(path).then((module) => module[start](place));
};
only("form.search[data-complete]", "./complete.js", "startComplete");
only("form.editor-form", "./editor.js", "startEditor");
