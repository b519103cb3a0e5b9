// Opens the console of a running server in headless Chromium, checks that its figures appear and
// change, and takes a picture. Called by the suite `console` of xtask, which makes the load.
//
// node test.mjs CHROMIUM URL PICTURE SECONDS
import { chromium } from "playwright-core";

const [executablePath, url, picture, seconds] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const faults = [];
try {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, deviceScaleFactor: 1 });
  page.setDefaultTimeout(20_000);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`page: ${error.message}`));
  page.on("request", (request) => {
    const asked = request.url();
    if (!asked.startsWith(url) && !asked.startsWith("data:")) faults.push(`asked elsewhere: ${asked}`);
  });
  page.on("response", (response) => {
    if (response.status() >= 400) faults.push(`${response.url()}: ${response.status()}`);
  });
  await page.goto(url);

  const tile = (name) => page.locator(".tile", { hasText: name }).locator("strong");
  const number = async (name) => Number.parseFloat(await tile(name).innerText());
  const wait = (what, is) => page.waitForFunction(is).catch(() => faults.push(`never came: ${what}`));

  await wait("health", () => document.querySelector("#health")?.textContent === "ok");
  await wait("requests", () => Number.parseFloat(document.querySelector(".tile strong")?.textContent ?? "0") > 0);
  await wait("clients", () => document.querySelectorAll("#clients tbody code").length >= 3);
  await wait("slow requests", () => document.querySelectorAll("#slow tbody code").length >= 2);
  await wait("events", () => /node serves|ready/.test(document.querySelector("#events")?.textContent ?? ""));
  await wait("nodes", () => document.querySelectorAll("#nodes .state.running").length === 4);
  await wait("charts", () => document.querySelectorAll(".chart canvas").length === 3);
  await wait("procedures", () => /GETATTR/.test(document.querySelector("#chart-requests")?.textContent ?? ""));
  await wait("topology", () => document.querySelectorAll("#topology .node.running").length === 4);

  const seen = new Set();
  const end = Date.now() + Number(seconds) * 1000;
  while (Date.now() < end || seen.size < 2) {
    seen.add(await number("Requests"));
    if (Date.now() > end + 20_000) {
      faults.push(`the figures stand still: ${[...seen]}`);
      break;
    }
    await page.waitForTimeout(300);
  }
  // Something was drawn: not one colour only.
  const colours = await page.evaluate(() => {
    const canvas = document.querySelector("#chart-requests canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  if (colours < 8) faults.push(`the chart has ${colours} colours`);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (overflow > 0) faults.push(`the page is ${overflow} pixels too wide`);
  await page.screenshot({ path: picture, fullPage: true });
  await page.emulateMedia({ colorScheme: "dark" });
  await wait("dark", () => getComputedStyle(document.body.parentElement).backgroundColor === "rgb(15, 21, 27)");
  await page.waitForTimeout(1200);
  await page.screenshot({ path: picture.replace(/\.png$/, "-dark.png"), fullPage: true });
} finally {
  await browser.close();
}
if (faults.length > 0) {
  console.error(faults.join("\n"));
  process.exit(1);
}
