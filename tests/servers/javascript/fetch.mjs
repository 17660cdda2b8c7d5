// A client with Node's fetch alone: the requests that clients.py names, the
// answers as lines of JSON.  usage: node fetch.mjs BASE_URL < REQUESTS
import { createInterface } from "node:readline";

const url = `${process.argv[2]}/plants`;
for await (const line of createInterface({ input: process.stdin })) {
	const { token, plant } = JSON.parse(line);
	const headers = { "Content-Type": "application/json" };
	if (token !== null) headers.Authorization = `Bearer ${token}`;
	const answer = await fetch(url, {
		method: "POST",
		headers,
		body: JSON.stringify(plant),
	});
	console.log(
		JSON.stringify({ status: answer.status, body: await answer.json() }),
	);
}
