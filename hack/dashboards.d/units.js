// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, in the units that the dashboards name.
"use strict";

function scaled(value, base, names) {
  let i = 0;
  while (Math.abs(value) >= base && i < names.length - 1) {
    value /= base;
    i++;
  }
  return Number(value.toPrecision(3)) + names[i];
}

function seconds(value) {
  for (const [limit, factor, name] of [[1e-6, 1e9, " ns"], [1e-3, 1e6, " us"], [1, 1e3, " ms"]]) {
    if (Math.abs(value) < limit) {
      return value === 0 ? "0 s" : Number((value * factor).toPrecision(3)) + name;
    }
  }
  return value < 120 ? Number(value.toPrecision(3)) + " s" : Number((value / 60).toPrecision(3)) + " min";
}

function inUnit(value, unit) {
  const binary = ["", "Ki", "Mi", "Gi", "Ti"];
  switch (unit) {
    case "bytes":
      return scaled(value, 1024, binary.map((n) => " " + n + "B"));
    case "binBps":
      return scaled(value, 1024, binary.map((n) => " " + n + "B/s"));
    case "ops":
      return scaled(value, 1000, [" ops/s", "K ops/s", "M ops/s", "G ops/s"]);
    case "percentunit":
      return Number((value * 100).toPrecision(3)) + "%";
    case "s":
      return seconds(value);
    default:
      return scaled(value, 1000, ["", "K", "M", "G"]);
  }
}
