// Drives Chromium for the test: it reads one command a line, as JSON, and answers each with one line.
//
//   node browser.mjs MODULES CHROMIUM    MODULES is the folder in which npm has installed package.json
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";

const [modules, chromium] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { default: puppeteer } = await import(require.resolve("puppeteer-core"));
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await puppeteer.launch({
  executablePath: chromium,
  // The certificate of the test is self-signed. As root, Chromium has no sandbox; the test opens only its own page.
  acceptInsecureCerts: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
let page;
let requests = [];
let complaints = [];

const commands = {
  /** Opens a page in a window of its own. */
  async open({ url, width, height, scheme }) {
    await page?.close();
    [requests, complaints] = [[], []];
    const context = await browser.createBrowserContext();
    page = await context.newPage();
    page.on("request", (request) => requests.push(request.url()));
    page.on("console", (message) => ["error", "warn"].includes(message.type()) && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(String(error)));
    await page.setViewport({ width, height, deviceScaleFactor: 1 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
    await page.goto(url);
  },
  value: ({ code }) => page.evaluate(code),
  async wait({ code }) {
    await page.waitForFunction(code, { timeout: 90_000 });
  },
  /** Rules of WCAG 2.2 AA and good practice that the page breaks. */
  async axe() {
    await page.evaluate(axe);
    const { violations } = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })");
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
  },
  /** What a screen reader reads: role and name of each node, in order. */
  async tree() {
    const lines = [];
    const walk = (node) => {
      lines.push(`${node.role} ${node.name ?? ""}`.trim());
      (node.children ?? []).forEach(walk);
    };
    walk(await page.accessibility.snapshot({ interestingOnly: false }));
    return lines;
  },
  press: ({ key }) => page.keyboard.press(key),
  type: ({ selector, text }) => page.type(selector, text),
  /** A picture from the top of the page to the end of the first article. */
  async picture({ path }) {
    const [width, height] = await page.evaluate(
      "[innerWidth, Math.ceil(document.querySelector('article').getBoundingClientRect().bottom) + 12]");
    await page.screenshot({ path, clip: { x: 0, y: 0, width, height }, captureBeyondViewport: true });
  },
  requests: () => requests,
  complaints: () => complaints,
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await commands[command.do](command)) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
