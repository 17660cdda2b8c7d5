#!/usr/bin/env node
// send.mjs OUTBOX URL: save the plants from stdin, JSON Lines without ids, and send
// them.  TOKEN is in the environment.  Each plant is in OUTBOX, on disk, before it is
// sent and until its 200: run this again after a crash.  OUTBOX/next has the next id, a
// BigInt: start with the first id of this sender's range.
import fs from "node:fs";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const [outbox, url] = process.argv.slice(2);
const again = (n) => [3004, 3008, 5101, 5102].includes(n) || (n >= 5002 && n <= 5011);
const headers = { Authorization: `Bearer ${process.env.TOKEN}`, "Content-Type": "application/json" };
const how = { method: "POST", redirect: "manual", headers };
const folder = fs.openSync(outbox);

function put(name, text) {
  fs.writeFileSync(`${outbox}/new`, text, { flush: true }); // since Node 20.10
  fs.renameSync(`${outbox}/new`, `${outbox}/${name}`);
  fs.fsyncSync(folder);
}

async function send(name) {
  const body = fs.readFileSync(`${outbox}/${name}`);
  for (let wait = 1000, after; ; wait = Math.min(2 * wait, 60000)) {
    try {
      const answer = await fetch(url, { ...how, body, signal: AbortSignal.timeout(30000) });
      const text = await answer.text();
      if (answer.status === 200) return fs.unlinkSync(`${outbox}/${name}`);
      after = 1000 * Number(answer.headers.get("Retry-After")) || 0;
      const number = Number(/"error": *(\d+)/.exec(text)?.[1]);
      if (!again(number) && answer.status !== 429 && (number || answer.status < 500)) {
        console.error(`${name}: ${answer.status}: ${text}`); // a person must decide
        process.exit(1);
      }
    } catch {
      after = 0; // no response: stored or not, it is safe to resend
    }
    await sleep(after + Math.random() * wait);
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const id = BigInt(fs.readFileSync(`${outbox}/next`, "utf8"));
  put("next", `${id + 1n}`);
  put(`${id}.json`, `{"id":${id},${JSON.stringify(JSON.parse(line)).slice(1)}`);
  await send(`${id}.json`);
}
for (const name of fs.readdirSync(outbox)) if (name.endsWith(".json")) await send(name);
