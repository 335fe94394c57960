// A line chart as SVG: enough to see whether a number rises, with the number itself as text beside it.

const SVG = "http://www.w3.org/2000/svg";

/** A figure with its name, its newest value, and its course. */
export function chart(name, values, format = (value) => String(value)) {
  const newest = values.at(-1) ?? 0;
  const most = Math.max(...values, 1e-9);
  const figure = document.createElement("div");
  figure.className = "card";
  const title = document.createElement("div");
  title.className = "quiet";
  title.textContent = name;
  const number = document.createElement("div");
  number.className = "figure";
  number.textContent = format(newest);
  figure.append(title, number, course(name, values, most, format));
  return figure;
}

function course(name, values, most, format) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${name}: now ${format(values.at(-1) ?? 0)}, at most ${format(most === 1e-9 ? 0 : most)} of ${values.length} samples`);
  const ground = document.createElementNS(SVG, "line");
  for (const [key, value] of Object.entries({ x1: 0, x2: 100, y1: 39, y2: 39 })) ground.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  const step = values.length > 1 ? 100 / (values.length - 1) : 0;
  path.setAttribute("d", values.map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(2)},${(38 - (value / most) * 36).toFixed(2)}`).join(""));
  svg.append(ground, path);
  return svg;
}
