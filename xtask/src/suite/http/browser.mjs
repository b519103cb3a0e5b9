// Opens a list of the HTTP door in headless Chromium, follows its links, makes a video of 12 frames
// that can be told from each other, uploads it, and seeks in it: each time the right frame has to be
// shown, and the browser has to have asked for ranges. Called by the suite `http` of xtask.
//
// TOKEN=… node door.mjs CHROMIUM URL
import { chromium } from "playwright-core";

const SECONDS = 12;
const [executablePath, url] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const faults = [];
const expect = (what, is) => is || faults.push(what);
try {
  // It does not know the authority of the test's certificate; curl does, and checks it.
  const page = await browser.newPage({ ignoreHTTPSErrors: url.startsWith("https:") });
  page.setDefaultTimeout(30_000);
  page.on("pageerror", (error) => faults.push(`page: ${error.message}`));
  const ranges = [];
  page.on("response", (response) => {
    const { pathname } = new URL(response.url());
    if (pathname !== "/favicon.ico" && response.status() >= 400) faults.push(`${pathname}: ${response.status()}`);
    if (pathname.endsWith("/video.webm") && response.request().method() === "GET") {
      ranges.push(`${response.status()} ${response.headers()["content-range"]}`);
    }
  });

  // The list: names are text, and links lead to the files.
  await page.goto(url);
  expect("the list is no table of names", (await page.locator("tbody tr").count()) >= 3);
  expect("a name became markup", (await page.locator("tbody i").count()) === 0);
  await page.getByText("a <i>&ä.txt").click();
  expect("the file was not found", (await page.innerText("body")) === "found by its link");
  await page.goBack();
  await page.getByText("inner/").click();
  await page.getByText("leaf.txt").click();
  expect("the inner file was not found", (await page.innerText("body")) === "leaf");
  await page.goBack();
  await page.getByText("../").click();
  expect("not back in the list", page.url() === url);

  const status = await page.evaluate(upload, [SECONDS, process.env.TOKEN]);
  expect(`the upload was answered ${status}`, status === 201);

  await page.goto(`${url}watch.html`);
  const duration = await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const video = document.querySelector("video");
        video.onerror = () => reject(new Error(`no video: ${video.error.message}`));
        video.onloadedmetadata = () => resolve(video.duration);
        if (video.readyState > 0) resolve(video.duration);
      }),
  );
  expect(`it lasts ${duration} s`, Math.abs(duration - SECONDS) < 0.1);
  for (const second of [9, 3, 6, 11, 0]) {
    const [time, frame] = await page.evaluate(seek, second + 0.5);
    expect(`sought ${second}.5, at ${time}`, Math.abs(time - second - 0.5) < 0.01);
    expect(`frame ${frame} at ${second}.5 s`, frame === second);
  }
  const partial = ranges.filter((range) => /^206 bytes [1-9]/.test(range));
  expect(`too few ranges: ${ranges.join("; ")}`, partial.length >= 2);
  console.log(`ranges of the video: ${ranges.join("; ")}`);
} finally {
  await browser.close();
}
if (faults.length > 0) {
  console.error(faults.join("\n"));
  process.exit(1);
}

// In the page: seeks, and tells where it is and which frame is shown.
async function seek(time) {
  const video = document.querySelector("video");
  await new Promise((resolve, reject) => {
    video.onseeked = resolve;
    video.onerror = () => reject(new Error(video.error.message));
    video.currentTime = time;
  });
  const canvas = new OffscreenCanvas(64, 48);
  const context = canvas.getContext("2d");
  context.drawImage(video, 0, 0);
  const isWhite = (bit) => context.getImageData(16 * bit + 8, 24, 1, 1).data[0] > 127;
  return [video.currentTime, [0, 1, 2, 3].reduce((sum, bit) => sum + (isWhite(bit) ? 2 ** bit : 0), 0)];
}

// In the page: makes a WebM file (RFC 9559) with a frame for each second, whose number is in four stripes,
// black or white; each is followed by 4 MiB that players skip (browsers keep up to 20 of what they have not asked for yet). Puts it.
async function upload([seconds, token]) {
  const frames = [];
  const encoder = new VideoEncoder({
    output: (chunk) => {
      const bytes = new Uint8Array(chunk.byteLength);
      chunk.copyTo(bytes);
      frames.push(bytes);
    },
    error: (error) => {
      throw error;
    },
  });
  encoder.configure({ codec: "vp8", width: 64, height: 48, bitrate: 1_000_000 });
  const canvas = new OffscreenCanvas(64, 48);
  const context = canvas.getContext("2d");
  for (let second = 0; second < seconds; second += 1) {
    for (const bit of [0, 1, 2, 3]) {
      context.fillStyle = (second >> bit) & 1 ? "white" : "black";
      context.fillRect(16 * bit, 0, 16, 48);
    }
    const frame = new VideoFrame(canvas, { timestamp: second * 1_000_000 });
    encoder.encode(frame, { keyFrame: true });
    frame.close();
  }
  await encoder.flush();

  const join = (parts) => {
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
    return all;
  };
  const number = (value, bytes) => Uint8Array.from({ length: bytes }, (_, at) => Math.floor(value / 256 ** (bytes - 1 - at)) % 256);
  const element = (id, ...parts) => {
    const content = join(parts);
    const size = number(content.length, 8);
    size[0] = 1;
    return join([Uint8Array.from(id.match(/../g), (digits) => Number.parseInt(digits, 16)), size, content]);
  };
  const text = (value) => new TextEncoder().encode(value);
  const float = (value) => new Uint8Array(new Float64Array([value]).buffer).reverse();

  const head = element(
    "1A45DFA3",
    element("4286", number(1, 1)),
    element("42F7", number(1, 1)),
    element("42F2", number(4, 1)),
    element("42F3", number(8, 1)),
    element("4282", text("webm")),
    element("4287", number(2, 1)),
    element("4285", number(2, 1)),
  );
  const info = element(
    "1549A966",
    element("2AD7B1", number(1_000_000, 4)),
    element("4489", float(seconds * 1000)),
    element("4D80", text("door")),
    element("5741", text("door")),
  );
  const picture = element("E0", element("B0", number(64, 2)), element("BA", number(48, 2)));
  const track = element(
    "AE",
    element("D7", number(1, 1)),
    element("73C5", number(1, 1)),
    element("83", number(1, 1)),
    element("86", text("V_VP8")),
    element("23E383", number(1_000_000_000, 4)),
    picture,
  );
  const tracks = element("1654AE6B", track);
  const clusters = frames.map((bytes, second) => {
    const block = element("A3", Uint8Array.of(0x81, 0, 0, 0x80), bytes);
    return join([element("1F43B675", element("E7", number(second * 1000, 4)), block), element("EC", new Uint8Array(4 << 20))]);
  });
  // Positions do not change the length of the list of cues.
  const cues = (start) => {
    let at = start;
    const points = clusters.map((cluster, second) => {
      const place = element("B7", element("F7", number(1, 1)), element("F1", number(at, 8)));
      at += cluster.length;
      return element("BB", element("B3", number(second * 1000, 4)), place);
    });
    return element("1C53BB6B", ...points);
  };
  const start = info.length + tracks.length + cues(0).length;
  const segment = element("18538067", info, tracks, cues(start), ...clusters);
  const put = await fetch("video.webm", {
    method: "PUT",
    headers: { Authorization: `Bearer ${token}` },
    body: join([head, segment]),
  });
  return put.status;
}
