// The viewer's own choices, kept in cookies that the server reads: time zone, theme, single keys.
const YEAR = 31536000;

export const cookie = (name) => {
  const pair = document.cookie.split("; ").find((text) => text.startsWith(name + "="));
  return pair ? decodeURIComponent(pair.slice(name.length + 1)) : "";
};

export const keep = (name, value) => {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `${name}=${encodeURIComponent(value)}; Path=/; Max-Age=${YEAR}; SameSite=Lax${secure}`;
};

export const startPrefs = () => {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!cookie("tz") && here) {
    keep("tz", here);
    // The page was rendered in UTC, as nothing else was known: once, in the viewer's own zone.
    if (cookie("tz") && here !== "UTC" && document.querySelector("time")) location.reload();
  }
  addEventListener("change", (event) => {
    const name = event.target.dataset && event.target.dataset.pref;
    if (!name) return;
    keep(name, event.target.value);
    if (name === "theme") document.documentElement.dataset.theme = event.target.value;
    else location.reload();
  });
};
