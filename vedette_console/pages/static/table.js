// Tables sort by their heads, lists narrow by a filter box: of what is on the page.
const worth = (cell) => {
  const text = cell ? (cell.dataset.by ?? cell.textContent.trim()) : "";
  const number = parseFloat(text.replace(/[,%]/g, ""));
  return /^[-+\d.,%]+$/.test(text) && !Number.isNaN(number) ? number : text;
};

const order = (head) => {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const compare = (a, b) => {
    const x = worth(a.cells[column]), y = worth(b.cells[column]);
    return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  };
  body.append(...[...body.rows].sort((a, b) => (down ? -compare(a, b) : compare(a, b))));
};

export const startTables = (place) => {
  for (const head of place.querySelectorAll("table.sort thead th")) {
    if (head.querySelector("button") || !head.textContent.trim()) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => order(head));
  }
  for (const box of place.querySelectorAll("input[data-filter]")) {
    if (box.dataset.started) continue;
    box.dataset.started = "1";
    const narrow = () => {
      const wanted = box.value.trim().toLowerCase(), list = document.querySelector(box.dataset.filter);
      for (const item of list.querySelectorAll("[data-row]")) item.hidden = !item.textContent.toLowerCase().includes(wanted);
    };
    box.addEventListener("input", narrow);
    if (box.value) narrow();
  }
};
