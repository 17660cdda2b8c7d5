// A client made from the published document: plants.ts is generated, so what
// is written here compiles only if the document says it.
// usage: node typed.js BASE_URL < REQUESTS, which clients.py names; lines of JSON
import createClient from "openapi-fetch";
import type { components, paths } from "./plants.js";

// What a client has in mind, and the document must agree with.
interface Plant {
	name: string;
	tag?: string;
}
interface NewPlant extends Plant {
	id: number;
}
interface Failure {
	error: number;
	message: string;
}

// A number that a later version has added.
export const later: components["schemas"]["Error"] = { error: 9999, message: "" };

// Of Node, without the types of all of it.
declare const process: {
	argv: string[];
	stdin: AsyncIterable<Uint8Array>;
};

interface Request {
	token: string | null;
	plant: NewPlant;
}

async function readRequests(): Promise<Request[]> {
	const decoder = new TextDecoder();
	let text = "";
	for await (const piece of process.stdin)
		text += decoder.decode(piece, { stream: true });
	return text
		.trim()
		.split("\n")
		.map((line) => JSON.parse(line) as Request);
}

function show(status: number, body: Plant | Failure): void {
	console.log(JSON.stringify({ status, body }));
}

for (const { token, plant } of await readRequests()) {
	const client = createClient<paths>({ baseUrl: process.argv[2] });
	const headers: Record<string, string> =
		token === null ? {} : { Authorization: `Bearer ${token}` };
	const { data, error, response } = await client.POST("/plants", {
		body: plant,
		headers,
	});
	if (error !== undefined) {
		// Every status of a failure has the same type.
		const failure: Failure = error;
		show(response.status, failure);
	} else {
		const created: Plant = data;
		show(response.status, created);
	}
}
