// The picture: clients, the door, the sites, and the nodes that hold it all.

import type { Snapshot } from "./api";
import { bytes, place, rate } from "./format";

const NAMESPACE = "http://www.w3.org/2000/svg";
const CLIENTS_MAX = 6;
const WIDTH = 900;
const ROW = 46;
const BOX = 36;
/// Left edges and widths of the columns.
const COLUMNS = { clients: [0, 190], door: [280, 150], sites: [500, 120], nodes: [690, 210] } as const;
const NODE_COLUMNS_FROM = 9;

type Attributes = Record<string, string | number>;

function draw(tag: string, attributes: Attributes, ...children: (Node | string)[]): SVGElement {
  const made = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

function box(x: number, y: number, width: number, kind: string, title: string, detail: string): SVGElement {
  return draw(
    "g",
    { class: `box ${kind}` },
    draw("rect", { x, y, width, height: BOX, rx: 7 }),
    draw("text", { x: x + 12, y: y + 15, class: "title" }, title),
    draw("text", { x: x + 12, y: y + 29, class: "detail" }, detail),
  );
}

function edge(from: [number, number], to: [number, number], share: number): SVGElement {
  const middle = (from[0] + to[0]) / 2;
  const path = `M${from[0]},${from[1]} C${middle},${from[1]} ${middle},${to[1]} ${to[0]},${to[1]}`;
  return draw("path", { d: path, class: "edge", "stroke-width": (1 + 4 * Math.min(1, share)).toFixed(1) });
}

export interface ClientRate {
  address: string;
  requests: number;
}

/// Draws the system of a snapshot; `rates` are requests a second, the busiest first.
export function show(snapshot: Snapshot, rates: ClientRate[]): void {
  const clients = rates.slice(0, CLIENTS_MAX);
  const more = rates.length - clients.length;
  const nodes = snapshot.status.nodes;
  const perColumn = nodes.length < NODE_COLUMNS_FROM ? nodes.length : Math.ceil(nodes.length / 2);
  const rows = Math.max(clients.length + (more > 0 ? 1 : 0), perColumn, snapshot.sites.length, 2);
  const height = rows * ROW;
  const y = (at: number, of: number): number => (height - of * ROW) / 2 + at * ROW + (ROW - BOX) / 2;
  const edges: SVGElement[] = [];
  const boxes: SVGElement[] = [];
  const door = snapshot.status.doors.find((one) => one.name === "nfs");
  const doorY = y(0, 1);
  const doorIn: [number, number] = [COLUMNS.door[0], doorY + BOX / 2];
  const doorOut: [number, number] = [COLUMNS.door[0] + COLUMNS.door[1], doorY + BOX / 2];
  const all = Math.max(1, rates.reduce((sum, one) => sum + one.requests, 0));
  const left = clients.length + (more > 0 ? 1 : 0);
  clients.forEach((client, at) => {
    const top = y(at, Math.max(left, 1));
    const [x, width] = COLUMNS.clients;
    boxes.push(box(x, top, width, "client", client.address, `${rate(client.requests)} requests/s`));
    edges.push(edge([x + width, top + BOX / 2], doorIn, client.requests / all));
  });
  if (more > 0) {
    const [x, width] = COLUMNS.clients;
    boxes.push(box(x, y(clients.length, left), width, "client", `${more} more`, "clients"));
  }
  if (left === 0) {
    const [x, width] = COLUMNS.clients;
    boxes.push(box(x, y(0, 1), width, "client none", "no clients", "yet"));
  }
  boxes.push(
    box(COLUMNS.door[0], doorY, COLUMNS.door[1], "door", "NFS door", door?.address ?? "off"),
  );
  const sites = snapshot.sites.slice(0, rows);
  const siteOuts: [number, number][] = sites.map((site, at) => {
    const [x, width] = COLUMNS.sites;
    const top = y(at, sites.length);
    boxes.push(box(x, top, width, site.is_serving ? "site" : "site failed", `site ${site.number}`, `${site.files} files`));
    edges.push(edge(doorOut, [x, top + BOX / 2], 0.4));
    return [x + width, top + BOX / 2];
  });
  const columns = Math.ceil(nodes.length / Math.max(perColumn, 1));
  const [left0, whole] = COLUMNS.nodes;
  const width = (whole - (columns - 1) * 10) / columns;
  nodes.forEach((node, at) => {
    const column = Math.floor(at / perColumn);
    const x = left0 + column * (width + 10);
    const top = y(at % perColumn, perColumn);
    const part = node.capacity_bytes > 0 ? node.used_bytes / node.capacity_bytes : 0;
    const detail = node.state === "running" ? `${bytes(node.used_bytes)} used` : node.state;
    boxes.push(box(x, top, width, `node ${node.state}`, `node ${node.number}`, detail));
    boxes.push(draw("rect", { x: x + 1, y: top + BOX - 4, width: Math.max(2, (width - 2) * part), height: 3, rx: 1.5, class: "level" }));
    if (column === 0) for (const from of siteOuts) edges.push(edge(from, [x, top + BOX / 2], 0.1));
  });
  const label =
    `${rates.length} clients, one NFS door, ${snapshot.sites.length} sites, ` +
    nodes.map((node) => `node ${node.number} ${node.state}`).join(", ");
  const picture = draw(
    "svg",
    { viewBox: `-2 0 ${WIDTH + 4} ${height}`, role: "img", "aria-label": label },
    ...edges,
    ...boxes,
  );
  place("topology").replaceChildren(picture);
}
