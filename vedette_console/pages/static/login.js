// The login page: the one act, and the viewer's time zone for the pages after it.
import { startActs } from "./act.js";
import { cookie, keep } from "./prefs.js";

const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (!cookie("tz") && here) keep("tz", here);
startActs();
