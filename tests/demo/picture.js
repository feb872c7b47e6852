// Renders a cast as a moving picture: node picture.js CAST PICTURE
const { readFileSync, writeFileSync } = require("node:fs");
const { render } = require("svg-term");

const [cast, picture] = process.argv.slice(2);
const options = { window: true, cursor: false, width: 120, height: 32 };
writeFileSync(picture, `${render(readFileSync(cast, "utf8"), options)}\n`);
