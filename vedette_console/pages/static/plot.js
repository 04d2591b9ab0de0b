// A chart over time of uPlot: bars of levels, one on the other, as in the daily report. Its numbers stand in a table of the page.
const day = (secs, zone) => new Date(secs * 1000).toLocaleDateString("en-GB", { timeZone: zone, day: "numeric", month: "short" });
const clock = (secs, zone) => new Date(secs * 1000).toLocaleTimeString("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit" });

export const startPlot = (place) => {
  const data = JSON.parse(document.querySelector(place.dataset.plot).textContent), zone = document.documentElement.dataset.tz || "UTC";
  const probe = document.createElement("i");
  place.append(probe);
  const colour = (name) => { probe.className = name; probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    const sums = [];
    data.levels.forEach((level, i) => sums.push(level.alerts.map((value, j) => value + (i ? sums[i - 1][j] : 0))));
    const ink = colour("soft"), grid = { stroke: colour("line"), width: 1 }, bars = uPlot.paths.bars({ size: [0.9, 40], gap: 1 });
    const total = (values) => values.reduce((sum, value) => sum + value, 0).toLocaleString("en");
    const series = data.levels.map((level, i) => ({
      label: level.name, fill: colour(level.name), width: 0, paths: bars, points: { show: false },
      value: (u, v, s, j) => (j === null || j === undefined ? total(level.alerts) : level.alerts[j].toLocaleString("en")),
    }));
    plot = new uPlot({
      width: place.clientWidth, height: 200, legend: { live: true }, cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (u, low, high) => [0, Math.max(high, 1) * 1.05] } },
      axes: [
        { stroke: ink, grid, ticks: grid, space: 56, values: (u, splits) => splits.map((s, i) => (i && day(s, zone) === day(splits[i - 1], zone) ? clock(s, zone) : i ? day(s, zone) : clock(s, zone))) },
        { stroke: ink, grid, ticks: grid, size: 50, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] },
      ],
      series: [{ label: "time", value: (u, v) => (v === null || v === undefined ? "all" : day(v, zone) + " " + clock(v, zone)) }, ...series.slice().reverse()],
    }, [data.times, ...sums.slice().reverse()], place);
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("change", (event) => { if (event.target.dataset.pref === "theme") setTimeout(draw); });
  let width = place.clientWidth;
  addEventListener("resize", () => { if (place.clientWidth !== width) { width = place.clientWidth; plot.setSize({ width, height: 200 }); } });
};
