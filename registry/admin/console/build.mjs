// Bundles the console into dist/, which is checked in: building Crossdock needs no Node.js.
import { build } from "esbuild";
import { copyFile } from "node:fs/promises";

await build({
  entryPoints: { console: "src/main.ts" },
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  legalComments: "none",
  banner: { js: "/* With uPlot (MIT licence, see uPlot-LICENSE.txt). Made by cargo xtask gen console. */" },
  outdir: "dist",
});
await copyFile("src/index.html", "dist/index.html");
await copyFile("node_modules/uplot/LICENSE", "dist/uPlot-LICENSE.txt");
