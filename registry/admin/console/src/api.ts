// What the admin API tells; see registry/admin/src/snapshot.rs.

export interface Histogram {
  buckets: [number, number][];
  sum: number;
}

export interface Traffic {
  requests: number;
  failures: number;
  read_bytes: number;
  written_bytes: number;
}

export interface Client extends Traffic {
  address: string;
  connections: number;
  idle_seconds: number;
}

export interface Procedure {
  program: string;
  name: string;
  statuses: Record<string, number>;
  latency: Histogram;
}

export interface DiskOperation {
  name: string;
  latency: Histogram;
  bytes: number;
}

export interface Disk {
  name: string;
  operations: DiskOperation[];
  classes: { name: string; waiting: number; in_flight: number }[];
}

export interface NodeFigures {
  number: number;
  disks: Disk[];
  journal_bytes: number;
  journal_used_bytes: number;
  journal_flushes: number;
  capacity_bytes: number;
  used_bytes: number;
  free_bytes: number;
  objects: number;
  cache_hit_blocks: number;
  cache_miss_blocks: number;
  cache_used_bytes: number;
}

export interface SlowRequest {
  at: number;
  seconds: number;
  procedure: string;
  client: string;
  export: string | null;
  file: number | null;
  status: string;
  waited: { queue: number; site: number; nodes: number; other: number };
}

export interface Snapshot {
  at: number;
  uptime_seconds: number;
  status: {
    version: string;
    ensemble: string;
    warnings: string[];
    files: number;
    replicas: number;
    doors: { name: string; address: string }[];
    nodes: { number: number; state: string; capacity_bytes: number; used_bytes: number; bad_blocks: number }[];
  };
  procedures: Procedure[];
  clients: Client[];
  other_clients: Traffic;
  door: {
    connections: number;
    connections_paused: number;
    calls: number;
    calls_max: number;
    held_bytes: number;
    slow_total: number;
  };
  nodes: NodeFigures[];
  sites: { number: number; is_serving: boolean; files: number }[];
  slow: SlowRequest[];
  memory: Record<string, number>;
  process: { cpu_seconds: number; resident_bytes: number };
}

export interface Point {
  at: number;
  seconds: number;
  requests: Record<string, number>;
  read_bytes: number;
  written_bytes: number;
  p50: number | null;
  p99: number | null;
  cpu: number;
  calls: number;
  connections: number;
}

export type Condition = "ok" | "degraded" | "failed";

export interface Health {
  status: Condition;
  checks: { name: string; status: Condition; detail: string }[];
}

export interface LogEvent {
  number: number;
  at: number;
  level: string;
  message: string;
  fields: Record<string, string>;
}

/// Asks the admin API. A health that has failed comes with 503, and is an answer.
export async function ask<T>(path: string): Promise<T> {
  const response = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (!response.ok && !path.startsWith("/health")) {
    throw new Error(`${path}: ${response.status}`);
  }
  return (await response.json()) as T;
}

/// What came since an older copy; one that has begun anew counts as a whole.
export function since(now: Histogram, before: Histogram | undefined): Map<number, number> {
  const counts = new Map(now.buckets);
  for (const [bucket, count] of before?.buckets ?? []) {
    const left = (counts.get(bucket) ?? 0) - count;
    if (left < 0) return new Map(now.buckets);
    if (left === 0) counts.delete(bucket);
    else counts.set(bucket, left);
  }
  return counts;
}

export function count(counts: Map<number, number>): number {
  let sum = 0;
  for (const one of counts.values()) sum += one;
  return sum;
}

/// The lowest value of a bucket; see base/metrics/src/histogram.rs.
function lower(bucket: number): number {
  if (bucket < 4) return bucket;
  return (4 + ((bucket - 4) % 4)) * 2 ** Math.floor((bucket - 4) / 4);
}

/// The value, in seconds, below which this part of all lies.
export function quantile(counts: Map<number, number>, part: number): number | null {
  const wanted = part * count(counts);
  let below = 0;
  for (const bucket of [...counts.keys()].sort((a, b) => a - b)) {
    const here = counts.get(bucket) ?? 0;
    if (below + here >= wanted) {
      const [from, to] = [lower(bucket), lower(bucket + 1)];
      return (from + (to - from) * ((wanted - below) / here)) / 1e6;
    }
    below += here;
  }
  return null;
}
