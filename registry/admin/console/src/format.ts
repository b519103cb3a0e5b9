// Numbers for people, and elements for the page.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(number: number): string {
  let unit = 0;
  let scaled = number;
  while (scaled >= 1024 && unit + 1 < UNITS.length) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(scaled) : scaled.toFixed(scaled < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

export function rate(number: number): string {
  if (number >= 10_000) return `${(number / 1000).toFixed(1)} k`;
  if (number >= 100 || number === 0) return number.toFixed(0);
  return number.toFixed(1);
}

export function time(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(1)} ms`;
  return `${seconds.toFixed(2)} s`;
}

export function duration(seconds: number): string {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit)) as [
    number,
    number,
    number,
  ];
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  if (minutes > 0) return `${minutes} min`;
  return `${Math.floor(seconds)} s`;
}

export function clock(at: number): string {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function percent(part: number): string {
  return `${(part * 100).toFixed(0)} %`;
}

type Child = Node | string;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  classes: string,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  made.append(...children);
  return made;
}

export function place(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

/// A bar that is filled in part; the text beside it says the same.
export function bar(part: number, tone = ""): HTMLElement {
  const fill = element("span", `fill ${tone}`);
  fill.style.width = `${Math.min(100, Math.max(0, part * 100)).toFixed(1)}%`;
  const whole = element("span", "bar", fill);
  whole.setAttribute("aria-hidden", "true");
  return whole;
}

export interface Column {
  head: string;
  /// Numbers stand right.
  number?: boolean;
}

/// Fills a table. Without rows it says so.
export function table(id: string, columns: Column[], rows: Child[][], empty: string): void {
  const heads = columns.map((column) => {
    const head = element("th", column.number ? "number" : "", column.head);
    head.scope = "col";
    return head;
  });
  const body = rows.map((row) =>
    element("tr", "", ...row.map((cell, at) => element("td", columns[at]?.number ? "number" : "", cell))),
  );
  if (body.length === 0) {
    const nothing = element("td", "empty", empty);
    nothing.colSpan = columns.length;
    body.push(element("tr", "", nothing));
  }
  place(id).replaceChildren(
    element("thead", "", element("tr", "", ...heads)),
    element("tbody", "", ...body),
  );
}
