// The tables and tiles, each from two snapshots.

import { type Health, type LogEvent, type NodeFigures, type Point, type SlowRequest, type Snapshot, count, quantile, since } from "./api";
import { bar, bytes, clock, duration, element, percent, place, rate, table, time } from "./format";
import type { ClientRate } from "./topology";

const CLIENTS_SHOWN = 20;
const SLOW_SHOWN = 20;
const EVENTS_SHOWN = 40;

export interface Client extends ClientRate {
  connections: number;
  read: number;
  written: number;
  idle: number;
}

/// The clients that are connected or called, the busiest first.
export function clientRates(before: Snapshot, now: Snapshot): Client[] {
  const seconds = Math.max(now.at - before.at, 0.001);
  const earlier = new Map(before.clients.map((client) => [client.address, client]));
  const rates = now.clients.map((client) => {
    const then = earlier.get(client.address);
    const per = (value: number, old: number | undefined): number => Math.max(0, value - (old ?? 0)) / seconds;
    return {
      address: client.address,
      connections: client.connections,
      idle: client.idle_seconds,
      requests: per(client.requests, then?.requests),
      read: per(client.read_bytes, then?.read_bytes),
      written: per(client.written_bytes, then?.written_bytes),
    };
  });
  const shown = rates.filter((client) => client.connections > 0 || client.requests > 0);
  return shown.sort((a, b) => b.requests - a.requests || a.idle - b.idle);
}

export function tiles(point: Point | undefined, snapshot: Snapshot): void {
  const all = Object.values(point?.requests ?? {}).reduce((sum, one) => sum + one, 0);
  const used = snapshot.nodes.reduce((sum, node) => sum + node.used_bytes, 0);
  const capacity = snapshot.nodes.reduce((sum, node) => sum + node.capacity_bytes, 0);
  const { door, process, status } = snapshot;
  const waiting = door.connections_paused > 0 ? `${door.connections_paused} paused` : `${door.calls} in progress`;
  const shown: [string, string, string][] = [
    ["Requests", `${rate(all)}/s`, waiting],
    ["Read", `${bytes(point?.read_bytes ?? 0)}/s`, "from files"],
    ["Written", `${bytes(point?.written_bytes ?? 0)}/s`, "to files"],
    ["Latency p99", time(point?.p99), `median ${time(point?.p50)}`],
    ["Connections", String(door.connections), `${snapshot.clients.length} clients known`],
    ["Capacity", capacity > 0 ? percent(used / capacity) : "–", `${bytes(used)} of ${bytes(capacity)}`],
    ["Files", status.files.toLocaleString("en"), `${status.replicas} ${status.replicas === 1 ? "copy" : "copies"}`],
    ["CPU", percent(point?.cpu ?? 0), `memory ${bytes(process.resident_bytes)}`],
  ];
  const made = shown.map(([name, value, detail]) =>
    element("div", "tile", element("span", "name", name), element("strong", "", value), element("span", "detail", detail)),
  );
  place("tiles").replaceChildren(...made);
}

export function identity(snapshot: Snapshot): void {
  const { version, ensemble } = snapshot.status;
  place("identity").textContent = `${version} · ensemble ${ensemble} · up ${duration(snapshot.uptime_seconds)}`;
}

export function health(health: Health): void {
  const pill = place("health");
  pill.className = `pill ${health.status}`;
  pill.textContent = health.status;
  const checks = health.checks.map((check) =>
    element(
      "li",
      check.status,
      element("span", "dot", ""),
      element("span", "name", check.name),
      element("span", "detail", check.status === "ok" ? check.detail : `${check.status}: ${check.detail}`),
    ),
  );
  place("checks").replaceChildren(...checks);
}

export function nodes(before: Snapshot, now: Snapshot): void {
  const seconds = Math.max(now.at - before.at, 0.001);
  const rows = now.status.nodes.map((status) => {
    const find = (all: Snapshot): NodeFigures | undefined => all.nodes.find((one) => one.number === status.number);
    return nodeRow(status, find(before), find(now), seconds);
  });
  const columns = [
    { head: "node" },
    { head: "state" },
    { head: "capacity" },
    { head: "used", number: true },
    { head: "free", number: true },
    { head: "journal" },
    { head: "commits/s", number: true },
    { head: "commit p99", number: true },
    { head: "disk read", number: true },
    { head: "disk write", number: true },
    { head: "waiting", number: true },
    { head: "cache hits", number: true },
    { head: "bad blocks", number: true },
  ];
  table("nodes", columns, rows, "no nodes");
}

function nodeRow(
  status: { number: number; state: string; bad_blocks: number },
  before: NodeFigures | undefined,
  now: NodeFigures | undefined,
  seconds: number,
): (Node | string)[] {
  const state = element("span", `state ${status.state}`, status.state);
  if (!now) return [String(status.number), state, ...Array<string>(11).fill("–")];
  const per = (part: (node: NodeFigures) => number): number => {
    const then = before ? part(before) : 0;
    return Math.max(0, part(now) - then) / seconds;
  };
  const operation = (disk: string, name: string) => (node: NodeFigures) =>
    node.disks.find((one) => one.name === disk)?.operations.find((one) => one.name === name);
  const moved = (name: string) => (node: NodeFigures) => operation("data", name)(node)?.bytes ?? 0;
  const write = operation("journal", "write");
  const writes = write(now);
  const commits = writes ? since(writes.latency, before && write(before)?.latency) : new Map<number, number>();
  const hits = per((node) => node.cache_hit_blocks);
  const reads = hits + per((node) => node.cache_miss_blocks);
  const waiting = now.disks.flatMap((disk) => disk.classes).reduce((sum, one) => sum + one.waiting, 0);
  const used = now.used_bytes / Math.max(1, now.capacity_bytes);
  const journal = now.journal_used_bytes / Math.max(1, now.journal_bytes);
  return [
    String(status.number),
    state,
    bar(used, used > 0.95 ? "bad" : ""),
    bytes(now.used_bytes),
    bytes(now.free_bytes),
    bar(journal, journal > 0.95 ? "bad" : "second"),
    rate(per((node) => node.journal_flushes)),
    time(quantile(commits, 0.99)),
    `${bytes(per(moved("read")))}/s`,
    `${bytes(per(moved("write")))}/s`,
    String(waiting),
    reads > 0 ? percent(hits / reads) : "–",
    String(status.bad_blocks),
  ];
}

export function clients(clients: Client[]): void {
  const rows = clients
    .slice(0, CLIENTS_SHOWN)
    .map((one) => [
      element("code", "", one.address),
      String(one.connections),
      rate(one.requests),
      `${bytes(one.read)}/s`,
      `${bytes(one.written)}/s`,
    ]);
  const columns = [
    { head: "address" },
    { head: "connections", number: true },
    { head: "requests/s", number: true },
    { head: "read", number: true },
    { head: "written", number: true },
  ];
  table("clients", columns, rows, "No client is connected.");
}

export function procedures(before: Snapshot, now: Snapshot): void {
  const seconds = Math.max(now.at - before.at, 0.001);
  const rows = now.procedures.map((procedure) => {
    const is = (other: { program: string; name: string }): boolean =>
      other.program === procedure.program && other.name === procedure.name;
    const counts = since(procedure.latency, before.procedures.find(is)?.latency);
    const total = Object.values(procedure.statuses).reduce((sum, one) => sum + one, 0);
    return { procedure, counts, total, rate: count(counts) / seconds };
  });
  rows.sort((a, b) => b.rate - a.rate || b.total - a.total);
  const cells = rows.map(({ procedure, counts, total, rate: per }) => [
    procedure.program === "nfs3" ? procedure.name : `${procedure.program} ${procedure.name}`,
    rate(per),
    time(quantile(counts, 0.5)),
    time(quantile(counts, 0.99)),
    total.toLocaleString("en"),
    (total - (procedure.statuses["ok"] ?? 0)).toLocaleString("en"),
  ]);
  const columns = [
    { head: "procedure" },
    { head: "per s", number: true },
    { head: "p50", number: true },
    { head: "p99", number: true },
    { head: "since start", number: true },
    { head: "failed", number: true },
  ];
  table("procedures", columns, cells, "Nothing was asked for yet.");
}

/** Where the time of a slow request went: what is worth a word. */
function waits(one: SlowRequest): string {
  const parts: [string, number][] = [
    ["before: queue", one.waited.queue],
    ["site", one.waited.site],
    ["nodes", one.waited.nodes],
    ["other", one.waited.other],
  ];
  const told = parts.filter(([, seconds]) => seconds >= one.seconds / 20);
  return told.map(([word, seconds]) => `${word} ${time(seconds)}`).join(", ");
}

export function slow(snapshot: Snapshot): void {
  const newest = snapshot.slow.slice(-SLOW_SHOWN).reverse();
  const rows = newest.map((one) => [
    clock(one.at),
    one.procedure,
    time(one.seconds),
    waits(one),
    element("code", "", one.client),
    one.export ?? "–",
    one.file === null ? "–" : element("code", "", one.file.toString(16)),
    one.status,
  ]);
  const columns = [
    { head: "time" },
    { head: "procedure" },
    { head: "took", number: true },
    { head: "of that" },
    { head: "client" },
    { head: "export" },
    { head: "file" },
    { head: "status" },
  ];
  table("slow", columns, rows, "No request has been slow.");
}

export function events(events: LogEvent[]): void {
  const newest = events.slice(-EVENTS_SHOWN).reverse();
  const rows = newest.map((one) => {
    const fields = Object.entries(one.fields).map(([name, value]) => `${name} ${value}`);
    const text = element("span", "", one.message, element("small", "", fields.length > 0 ? ` ${fields.join(" · ")}` : ""));
    return [clock(one.at), element("span", `level ${one.level.toLowerCase()}`, one.level), text];
  });
  table("events", [{ head: "time" }, { head: "level" }, { head: "event" }], rows, "Nothing has happened.");
}
