// README's example, which clients.py puts into its place, and another plant
// through a generated client.  The answers are lines of JSON.
// usage: node readme.mjs BASE_URL TOKEN
import createClient from "openapi-fetch";

const [url, token] = process.argv.slice(2);
const headers = {
	Authorization: `Bearer ${token}`,
	"Content-Type": "application/json",
};
// README
console.log(
	JSON.stringify({ status: answer.status, body: await answer.json() }),
);
const client = createClient({ baseUrl: url, bodySerializer: plantBody });
const { data, response } = await client.POST("/plants", {
	headers,
	body: { id: -9007199254740993n, name: "Fern" },
});
console.log(JSON.stringify({ status: response.status, body: data }));
