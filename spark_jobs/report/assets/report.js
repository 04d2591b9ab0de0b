"use strict";
// The timeline, sorting, filters, and the numbers of a touched cell. The page is whole without it but for the chart.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Bars of levels, one on the other: each series is the sum of the levels up to it, the largest drawn first.
  const place = document.getElementById("plot");
  let plot = null;
  const draw = () => {
    if (!place) return;
    if (plot) plot.destroy();
    const shown = data.levels.map((level) => level.alerts);
    const sums = [];
    shown.forEach((values, i) => sums.push(values.map((value, j) => value + (i ? sums[i - 1][j] : 0))));
    const ink = css("--soft"), grid = { stroke: css("--line"), width: 1 };
    const bars = uPlot.paths.bars({ size: [0.86, 60] });
    const series = data.levels.map((level, i) => ({
      label: level.name, fill: css("--" + level.name), width: 0, paths: bars, points: { show: false },
      value: (u, v, s, j) => (j === null || j === undefined ? total(shown[i]) : shown[i][j].toLocaleString("en")),
    }));
    const day = (secs) => new Date(secs * 1000).toLocaleDateString("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });
    const clock = (secs) => new Date(secs * 1000).toISOString().slice(11, 16);
    const name = (secs) => (secs % 86400 ? clock(secs) : day(secs));
    const total = (values) => values.reduce((sum, value) => sum + value, 0).toLocaleString("en");
    plot = new uPlot({
      width: place.clientWidth, height: 230, legend: { live: true }, cursor: { drag: { x: true, y: false } },
      tzDate: (secs) => uPlot.tzDate(new Date(secs * 1000), "Etc/UTC"),
      scales: { y: { range: (u, low, high) => [0, Math.max(high, 1) * 1.05] } },
      axes: [{ stroke: ink, grid, ticks: grid, values: (u, splits) => splits.map(name), space: 52 }, { stroke: ink, grid, ticks: grid, size: 56 }],
      series: [{ label: "hour", value: (u, v) => (v === null || v === undefined ? "all" : day(v) + " " + clock(v)) }, ...series.slice().reverse()],
    }, [data.hours, ...sums.slice().reverse()], place);
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = place && place.clientWidth;
  addEventListener("resize", () => {
    if (place && place.clientWidth !== width) { width = place.clientWidth; plot.setSize({ width, height: 230 }); }
  });

  // A link into a folded part opens it.
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();

  const told = document.getElementById("told");
  const tell = (event) => {
    const cell = event.target.closest(".heat td[title]");
    if (cell && told) told.textContent = cell.title;
  };
  for (const kind of ["click", "focusin", "mouseover"]) addEventListener(kind, tell);

  // One stop of the Tab key in the heat map; the arrow keys go on from there, over cells that have no alert.
  const cells = [...document.querySelectorAll(".heat td[title]")];
  if (cells.length) cells[0].tabIndex = 0;
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  addEventListener("keydown", (event) => {
    const cell = event.target.closest && event.target.closest(".heat td[title]"), step = steps[event.key];
    if (!cell || !step) return;
    const rows = cell.closest("tbody").rows;
    let row = cell.parentNode.sectionRowIndex, column = cell.cellIndex, next = null;
    do {
      row += step[0]; column += step[1];
      next = rows[row] && rows[row].cells[column];
    } while (next && !next.title);
    event.preventDefault();
    if (!next || next.tagName !== "TD") return;
    cell.tabIndex = -1; next.tabIndex = 0; next.focus();
  });

  const worth = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const number = parseFloat(text.replace(/[,%]/g, ""));
    return /^[-+\d.,%]+$/.test(text) && !Number.isNaN(number) ? number : text;
  };
  for (const head of document.querySelectorAll("table.sort th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.addEventListener("click", () => {
      const body = head.closest("table").tBodies[0], column = head.cellIndex;
      const down = head.dataset.down !== "1";
      head.dataset.down = down ? "1" : "0";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = (a, b) => {
        const x = worth(a.cells[column]), y = worth(b.cells[column]);
        return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      };
      body.append(...[...body.rows].sort((a, b) => (down ? -compare(a, b) : compare(a, b))));
    });
  }

  for (const box of document.querySelectorAll("input.filter")) {
    const list = document.getElementById(box.dataset.of);
    const items = list.tBodies ? [...list.tBodies[0].rows] : [...list.children];
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      for (const item of items) item.hidden = !item.textContent.toLowerCase().includes(wanted);
    });
  }
})();
