// The console: asks the admin API every second and draws what it tells.

import "./console.css";

import { type Health, type LogEvent, type Point, type Snapshot, ask } from "./api";
import * as charts from "./charts";
import { place } from "./format";
import * as tables from "./tables";
import * as topology from "./topology";

const INTERVAL_MS = 1000;
const POINTS_MAX = 600;
const EVENTS_MAX = 512;

let points: Point[] = [];
let events: LogEvent[] = [];
let before: Snapshot | undefined;

async function refresh(): Promise<void> {
  const newestPoint = points.at(-1)?.at ?? 0;
  const newestEvent = events.at(-1)?.number ?? 0;
  const [snapshot, health, newPoints, newEvents] = await Promise.all([
    ask<Snapshot>("/v1/figures"),
    ask<Health>("/health"),
    ask<Point[]>(`/v1/history?after=${newestPoint}`),
    ask<LogEvent[]>(`/v1/events?after=${newestEvent}`),
  ]);
  points = [...points, ...newPoints].slice(-POINTS_MAX);
  events = [...events, ...newEvents].slice(-EVENTS_MAX);
  show(snapshot, health);
}

function show(snapshot: Snapshot, health: Health): void {
  const earlier = before ?? snapshot;
  before = snapshot;
  tables.health(health);
  tables.identity(snapshot);
  tables.tiles(points.at(-1), snapshot);
  charts.draw(points);
  const clients = tables.clientRates(earlier, snapshot);
  topology.show(snapshot, clients);
  tables.nodes(earlier, snapshot);
  tables.clients(clients);
  tables.procedures(earlier, snapshot);
  tables.slow(snapshot);
  tables.events(events);
}

async function run(): Promise<void> {
  const silence = place("silence");
  try {
    await refresh();
    silence.hidden = true;
  } catch (error) {
    silence.textContent = `No answer from the server: ${String(error)}. What is below may be old.`;
    silence.hidden = false;
    // A server that was started anew counts from zero.
    before = undefined;
    const health = await ask<Health>("/health").catch(() => undefined);
    if (health) tables.health(health);
  }
  setTimeout(() => void run(), INTERVAL_MS);
}

const redraw = (): void => {
  charts.forget();
  if (points.length > 0) charts.draw(points);
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);
void run();
