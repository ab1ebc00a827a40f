// Draws a dashboard as a picture, with Grafana's own components in headless Chromium and the answers of a Prometheus.
//
//     npm ci
//     node draw.mjs --prometheus URL --dashboard FILE --out PICTURE.png --from SECONDS --to SECONDS [--step SECONDS]
//         [--variable NAME=VALUE ...] [--last] [--chromium PROGRAM] [--width PIXELS]
//
// The times are seconds since 1970. With --last the legends also say the last figure of each line. It takes its packages
// from the folder that it is run in, and prints the texts of all panels: a line for each row of a table and each other text.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const require = createRequire(join(process.cwd(), 'package.json'));
const { build } = require('esbuild');
const { chromium } = require('playwright-core');
const here = dirname(fileURLToPath(import.meta.url));
const text = { type: 'string' };
const { values: options } = parseArgs({
  options: {
    prometheus: text, dashboard: text, out: text, from: text, to: text, step: { ...text, default: '15' },
    variable: { ...text, multiple: true, default: [] }, last: { type: 'boolean', default: false }, chromium: { ...text, default: '/usr/bin/chromium' }, width: { ...text, default: '1400' },
  },
});
for (const name of ['prometheus', 'dashboard', 'out', 'from', 'to']) {
  if (!options[name]) throw new Error(`--${name} is missing`);
}

const bundled = await build({
  entryPoints: [join(here, 'dashboard.jsx')], bundle: true, write: false, outdir: here, format: 'esm', target: 'es2022', jsx: 'automatic',
  define: { 'process.env.NODE_ENV': '"production"' }, loader: { '.svg': 'dataurl', '.png': 'dataurl', '.ttf': 'dataurl' }, logLevel: 'error', logLimit: 3,
  nodePaths: [join(process.cwd(), 'node_modules')],
});
const settings = JSON.stringify({
  dashboard: JSON.parse(readFileSync(options.dashboard, 'utf8')),
  from: Number(options.from), to: Number(options.to), step: Number(options.step), last: options.last,
  variables: Object.fromEntries(options.variable.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)])),
});
const files = {
  '/': ['text/html', '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/dashboard.css"><body><script type="module" src="/dashboard.js"></script>'],
  '/dashboard.js': ['text/javascript', bundled.outputFiles.find(({ path }) => path.endsWith('.js')).text],
  '/dashboard.css': ['text/css', bundled.outputFiles.find(({ path }) => path.endsWith('.css')).text],
  '/settings.json': ['application/json', settings],
};
const server = createServer(async (request, response) => {
  const file = files[request.url];
  if (file) return response.writeHead(200, { 'content-type': file[0] }).end(file[1]);
  if (!request.url.startsWith('/api/v1/')) return response.writeHead(404).end();
  const answer = await fetch(options.prometheus + request.url);
  response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text());
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));

const browser = await chromium.launch({
  executablePath: options.chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
try {
  const page = await browser.newPage({ viewport: { width: Number(options.width), height: 900 }, timezoneId: 'UTC' });
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.waitForSelector('[data-panel]', { timeout: 60_000 }).catch((error) => errors.push(error.message));
  // The panels go on to draw themselves, until two pictures are the same.
  let before, picture;
  for (let look = 0; look < 60 && !before?.equals(picture); look++) {
    before = picture;
    await page.waitForTimeout(1000);
    picture = await page.screenshot({ path: options.out, fullPage: true });
  }
  for (const panel of await page.locator('[data-panel]').all()) {
    const rows = await panel.getByRole('row').all();
    for (const part of rows.length ? [panel.getByRole('heading'), ...rows] : [panel]) {
      const told = await part.innerText();
      console.log(told.replaceAll(rows.length ? '\n' : '\nLast *: ', ' | '));
    }
  }
  if (errors.length) throw new Error(errors.join('\n'));
} finally {
  await browser.close();
  server.close();
}
