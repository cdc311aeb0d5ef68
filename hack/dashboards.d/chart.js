// SPDX-License-Identifier: Apache-2.0
// Lines over time, as SVG, with a table of what they are and where they end.
"use strict";

const COLOURS = ["#3f6833", "#5195ce", "#e0752d", "#bf1b00", "#962d82", "#967302", "#2f575e", "#0a50a1", "#b7dbab", "#dc9f3b"];
const WIDTH = 600, HEIGHT = 160, LEFT = 70, BOTTOM = 18, TOP = 6;

function element(name, attributes, text) {
  const svg = ["svg", "path", "line", "text"].includes(name);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    e.setAttribute(key, value);
  }
  if (text !== undefined) {
    e.textContent = text;
  }
  return e;
}

// ceiling is a round number that is no less, in steps of the unit's base.
function ceiling(value, unit) {
  const base = unit === "bytes" || unit === "binBps" ? 2 : 10;
  const step = base === 2 ? 2 ** Math.floor(Math.log2(value)) : 10 ** Math.floor(Math.log10(value));
  for (const times of [1, 1.25, 1.5, 2, 2.5, 5, 10]) {
    if (step * times >= value) {
      return step * times;
    }
  }
  return value;
}

// path leaves gaps where there is no value; a value with none beside it is a short line.
function path(points, x, y, step) {
  let text = "", before = null;
  for (const [time, value] of points) {
    if (!Number.isFinite(value)) {
      before = null;
      continue;
    }
    const at = x(time).toFixed(1) + " " + y(value).toFixed(1);
    text += before !== null && time - before < 2.5 * step ? "L" + at : "M" + at + "h1";
    before = time;
  }
  return text;
}

// drawLines puts a chart of series {name, points: [[seconds, value]]} into a section.
function drawLines(section, series, defaults, start, end, step) {
  const values = series.flatMap((s) => s.points.map((p) => p[1])).filter(Number.isFinite);
  const top = defaults.max !== undefined ? defaults.max : ceiling(Math.max(...values, 0) || 1, defaults.unit);
  const bottom = Math.min(...values, 0);
  const x = (time) => LEFT + ((time - start) / (end - start)) * (WIDTH - LEFT);
  const y = (value) => TOP + ((top - value) / (top - bottom || 1)) * (HEIGHT - TOP - BOTTOM);
  const svg = element("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none"});
  for (let i = 0; i <= 4; i++) {
    const value = bottom + ((top - bottom) * i) / 4;
    svg.append(element("line", {x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), stroke: "#e4e6e7"}),
      element("text", {x: LEFT - 4, y: y(value) + 3, "text-anchor": "end"}, inUnit(value, defaults.unit)));
    const time = start + ((end - start) * i) / 4;
    svg.append(element("text", {x: x(time), y: HEIGHT - 4, "text-anchor": i === 4 ? "end" : i === 0 ? "start" : "middle"},
      new Date(time * 1000).toTimeString().slice(0, 8)));
  }
  const table = element("table");
  series.forEach((s, i) => {
    const colour = COLOURS[i % COLOURS.length];
    svg.append(element("path", {d: path(s.points, x, y, step), stroke: colour, fill: "none", "stroke-width": 1.5}));
    const numbers = s.points.map((p) => p[1]).filter(Number.isFinite);
    const row = element("tr"), name = element("td");
    name.append(element("i", {class: "key", style: "background:" + colour}), s.name);
    row.append(name, element("td", {class: "number"}, "last " + inUnit(numbers[numbers.length - 1], defaults.unit)),
      element("td", {class: "number"}, "max " + inUnit(Math.max(...numbers), defaults.unit)));
    if (i < 8) {
      table.append(row);
    }
  });
  section.append(svg, table);
}
