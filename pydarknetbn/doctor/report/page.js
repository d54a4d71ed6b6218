(() => {
"use strict";
const byId = (id) => document.getElementById(id);

// --- charts
const figures = JSON.parse(byId("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)");
const config = { displayModeBar: false, responsive: true, showTips: false };

const paper = { curves: [680, 270], heatmap: [330, 250], scatter: [330, 250] }; // pixels on a printed page

const draw = (isDark, printed = false) => {
  for (const [id, figure] of Object.entries(figures)) {
    const layout = { ...structuredClone(figure.layout), template: isDark ? figure.dark : figure.light };
    if (coarse.matches) layout.dragmode = false; // a finger on a chart scrolls the page
    if (printed) [layout.width, layout.height, layout.autosize] = [...paper[id], false];
    Plotly.react(byId(id), figure.data, layout, config);
  }
};

if (Object.keys(figures).length) {
  draw(dark.matches);
  dark.addEventListener("change", () => draw(dark.matches));
  addEventListener("beforeprint", () => draw(false, true));
  addEventListener("afterprint", () => draw(dark.matches));
}

// --- table
const table = byId("rows");
if (!table) return;
const body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells];
const rows = [...body.rows].map((element, place) => ({ element, place, text: element.textContent.toLowerCase() }));
if (rows.length > 40) table.parentElement.classList.add("long");

const keyOf = (row, column) => {
  const cell = row.element.cells[column];
  if (!("key" in cell.dataset)) return cell.textContent.trim().toLowerCase();
  return cell.dataset.key === "" ? null : Number(cell.dataset.key);
};

const sort = (column) => {
  const head = heads[column];
  const worstFirst = head.classList.contains("number") && column > 0;
  const now = head.getAttribute("aria-sort");
  const descending = now ? now === "ascending" : worstFirst;
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const compare = (a, b) => {
    const [left, right] = [keyOf(a, column), keyOf(b, column)];
    if (left === null || left === "" || right === null || right === "") { // what is not known comes last either way
      return Number(left === null || left === "") - Number(right === null || right === "") || a.place - b.place;
    }
    const order = typeof left === "number" ? (left > right) - (left < right) : left.localeCompare(right, undefined, { numeric: true });
    return (descending ? -order : order) || a.place - b.place;
  };
  body.append(...[...rows].sort(compare).map((row) => row.element));
};

const none = document.createElement("tr");
none.className = "none";
none.innerHTML = "<td></td>";
none.cells[0].colSpan = heads.length;
none.cells[0].textContent = "No row fits.";

const filter = () => {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { element, text } of rows) {
    const fits = words.every((word) => text.includes(word)) && (!byId("bad").checked || element.classList.contains("bad"));
    element.hidden = !fits;
    shown += fits;
  }
  if (shown) none.remove(); else body.append(none);
  byId("count").textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
};

heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sort(column)));
byId("find").addEventListener("input", filter);
byId("bad").addEventListener("change", filter);
byId("more").addEventListener("change", (event) => {
  table.classList.toggle("all", event.target.checked);
  document.querySelector(".legend").classList.toggle("all", event.target.checked);
});
filter();
})();
