// SPDX-License-Identifier: Apache-2.0
// Reads a dashboard, asks Prometheus what its panels ask, and draws them. ?board=NAME&minutes=N, and a variable's name for its value.
"use strict";

const BOARDS = ["cluster", "node", "volume", "pod"];
const query = new URLSearchParams(location.search);
const minutes = Number(query.get("minutes")) || 15;

async function ask(path, parameters) {
  const response = await fetch("/api/v1/" + path + "?" + new URLSearchParams(parameters));
  const answer = await response.json();
  if (answer.status !== "success") {
    throw new Error(answer.error);
  }
  return answer.data;
}

// The boards' variables are of the form label_values(SERIES, LABEL); a value that was not chosen is all of them.
async function chosen(variables) {
  const values = {};
  for (const v of variables.filter((v) => v.type === "query")) {
    const [, series, label] = /^label_values\((.+), ([a-z_]+)\)$/.exec(v.query);
    const known = await ask(`label/${label}/values`, {"match[]": filled(series, values), start: Date.now() / 1000 - minutes * 60});
    values[v.name] = query.get(v.name) || ".*";
    const field = element("label", {}, v.name + " "), select = element("select", {name: v.name});
    select.append(new Option("All", ".*"), ...known.map((k) => new Option(k, k)));
    select.value = values[v.name];
    select.onchange = () => {
      query.set(v.name, select.value);
      location.search = query;
    };
    field.append(select);
    document.getElementById("choices").append(field);
  }
  return values;
}

function filled(expression, values) {
  for (const [name, value] of Object.entries(values)) {
    expression = expression.replaceAll("$" + name, value);
  }
  // Prometheus is told to scrape every ten seconds here.
  return expression.replaceAll("$__rate_interval", "40s");
}

function nameOf(target, metric) {
  if (target.legendFormat) {
    return target.legendFormat.replace(/\{\{\s*([a-z_]+)\s*\}\}/g, (_, label) => metric[label] || "");
  }
  return Object.entries(metric).map(([k, v]) => k + "=" + v).join(", ") || "value";
}

async function stat(section, panel, values) {
  const data = await ask("query", {query: filled(panel.targets[0].expr, values)});
  const numbers = data.result.map((r) => Number(r.value[1])).filter(Number.isFinite);
  const text = numbers.map((n) => inUnit(n, panel.fieldConfig.defaults.unit)).join(", ");
  section.append(element("div", {class: numbers.length ? "big" : "none"}, text || "No data"));
  return numbers.length;
}

async function table(section, panel, values) {
  const data = await ask("query", {query: filled(panel.targets[0].expr, values)});
  const organize = ((panel.transformations || []).find((t) => t.id === "organize") || {options: {}}).options;
  const excluded = organize.excludeByName || {}, order = organize.indexByName || {}, names = organize.renameByName || {};
  const rows = data.result.map((r) => ({...r.metric, Value: inUnit(Number(r.value[1]), panel.fieldConfig.defaults.unit)}));
  const columns = [...new Set(rows.flatMap(Object.keys))].filter((c) => !excluded[c] && c !== "__name__");
  columns.sort((a, b) => (order[a] ?? 99) - (order[b] ?? 99));
  if (!rows.length) {
    section.append(element("div", {class: "none"}, "No data"));
    return 0;
  }
  const body = element("table"), head = element("tr");
  head.append(...columns.map((c) => element("th", {}, names[c] || c)));
  body.append(head);
  for (const row of rows) {
    const line = element("tr");
    line.append(...columns.map((c) => element("td", {}, row[c] || "")));
    body.append(line);
  }
  section.append(body);
  return rows.length;
}

async function timeseries(section, panel, values) {
  const end = Date.now() / 1000, start = end - minutes * 60, step = Math.max(10, (minutes * 60) / 200);
  const series = [];
  for (const target of panel.targets) {
    const data = await ask("query_range", {query: filled(target.expr, values), start, end, step});
    for (const r of data.result) {
      const points = r.values.map(([time, value]) => [time, Number(value)]);
      if (points.some((p) => Number.isFinite(p[1]))) {
        series.push({name: nameOf(target, r.metric), points});
      }
    }
  }
  if (series.length) {
    drawLines(section, series, panel.fieldConfig.defaults, start, end, step);
  } else {
    section.append(element("div", {class: "none"}, "No data"));
  }
  return series.length;
}

const KINDS = {stat, table, timeseries};

async function draw(panel, values) {
  if (panel.type === "row") {
    return element("h2", {}, panel.title);
  }
  const section = element("section", {style: `grid-column: span ${panel.gridPos.w}`});
  section.append(element("h3", {}, panel.title));
  try {
    section.dataset.series = await KINDS[panel.type](section, panel, values);
  } catch (error) {
    section.append(element("div", {class: "error"}, String(error)));
  }
  return section;
}

async function show() {
  const name = BOARDS.includes(query.get("board")) ? query.get("board") : BOARDS[0];
  for (const board of BOARDS) {
    document.getElementById("boards").append(
      element("a", {href: "?board=" + board + "&minutes=" + minutes, class: board === name ? "here" : ""}, "SplitFS / " + board));
  }
  const board = await (await fetch("boards/" + name + ".json")).json();
  document.title = board.title;
  const values = await chosen(board.templating.list);
  const panels = await Promise.all(board.panels.flatMap((p) => [p, ...(p.panels || [])]).map((p) => draw(p, values)));
  document.getElementById("panels").append(...panels);
  document.body.dataset.drawn = "yes"; // what waits for the picture looks for this
}

show().catch((error) => {
  document.getElementById("panels").append(element("section", {class: "error"}, String(error)));
  document.body.dataset.drawn = "failed";
});
