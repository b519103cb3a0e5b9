// Rates over the last ten minutes, drawn by uPlot.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import type { Point } from "./api";
import { place, rate, time } from "./format";

const WINDOW_SECONDS = 600;
const HEIGHT = 190;
/// Procedures with a line of their own; the rest share one.
const PROCEDURES_MAX = 5;

interface Line {
  label: string;
  color: string;
  value: (point: Point) => number | null;
}

interface Chart {
  id: string;
  label: string;
  show: (value: number) => string;
  lines: (points: Point[]) => Line[];
}

const of = (point: Point, names: string[]): number =>
  names.reduce((sum, name) => sum + (point.requests[name] ?? 0), 0);

function procedures(points: Point[]): Line[] {
  const sums = new Map<string, number>();
  for (const point of points) {
    for (const [name, count] of Object.entries(point.requests)) {
      sums.set(name, (sums.get(name) ?? 0) + count);
    }
  }
  const names = [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const lines: Line[] = names.slice(0, PROCEDURES_MAX).map((name, at) => ({
    label: name,
    color: `--line-${at + 1}`,
    value: (point) => of(point, [name]),
  }));
  const rest = names.slice(PROCEDURES_MAX);
  if (rest.length > 0) {
    lines.push({ label: "others", color: "--line-6", value: (point) => of(point, rest) });
  }
  return lines;
}

const CHARTS: Chart[] = [
  { id: "chart-requests", label: "Requests per second by procedure", show: rate, lines: procedures },
  {
    id: "chart-throughput",
    label: "Megabytes read and written per second",
    show: (value) => value.toFixed(value < 10 ? 1 : 0),
    lines: () => [
      { label: "read", color: "--line-1", value: (point) => point.read_bytes / 1e6 },
      { label: "written", color: "--line-2", value: (point) => point.written_bytes / 1e6 },
    ],
  },
  {
    id: "chart-latency",
    label: "Latency, median and 99th percentile",
    show: (value) => time(value / 1e3),
    lines: () => [
      { label: "p99", color: "--line-4", value: (point) => (point.p99 === null ? null : point.p99 * 1e3) },
      { label: "p50", color: "--line-1", value: (point) => (point.p50 === null ? null : point.p50 * 1e3) },
    ],
  },
];

const drawn = new Map<string, { plot: uPlot; labels: string }>();

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function options(chart: Chart, lines: Line[], width: number): uPlot.Options {
  const axis = {
    stroke: color("--muted"),
    grid: { stroke: color("--grid"), width: 1 },
    ticks: { stroke: color("--grid"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, Math.max(max * 1.1, 0.001)] } },
    axes: [
      { ...axis, space: 70, values: "{HH}:{mm}:{ss}" },
      { ...axis, size: 52, values: (_, values) => values.map((value) => rateOf(value)) },
    ],
    series: [
      { value: "{HH}:{mm}:{ss}" },
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        width: 1.75,
        spanGaps: false,
        points: { show: false },
        value: (_: uPlot, value: number | null) => (value === null ? "–" : chart.show(value)),
      })),
    ],
  };
}

function rateOf(value: number): string {
  if (value >= 1e6) return `${value / 1e6} M`;
  if (value >= 1e3) return `${value / 1e3} k`;
  return String(value);
}

/// Draws what is known of the last ten minutes.
export function draw(points: Point[]): void {
  const end = points.at(-1)?.at ?? Date.now() / 1000;
  for (const chart of CHARTS) {
    const holder = place(chart.id);
    const lines = chart.lines(points);
    const labels = lines.map((line) => line.label).join();
    const data = [
      points.map((point) => point.at),
      ...lines.map((line) => points.map(line.value)),
    ] as uPlot.AlignedData;
    let known = drawn.get(chart.id);
    if (known?.labels !== labels) {
      known?.plot.destroy();
      holder.setAttribute("role", "img");
      holder.setAttribute("aria-label", chart.label);
      const plot = new uPlot(options(chart, lines, holder.clientWidth), data, holder);
      known = { plot, labels };
      drawn.set(chart.id, known);
    } else {
      known.plot.setData(data, false);
    }
    const begin = Math.max(end - WINDOW_SECONDS, points[0]?.at ?? end - 1);
    known.plot.batch(() => {
      known.plot.setScale("x", { min: Math.min(begin, end - 10), max: end });
    });
    // What the legend says follows the pointer; without one, the newest.
    const { plot } = known;
    requestAnimationFrame(() => {
      if ((plot.cursor.left ?? -1) < 0 && points.length > 0) {
        plot.setLegend({ idx: points.length - 1 }, false);
      }
    });
  }
}

/// Charts have their colours and widths from the page: made anew when those change.
export function forget(): void {
  for (const { plot } of drawn.values()) plot.destroy();
  drawn.clear();
}
