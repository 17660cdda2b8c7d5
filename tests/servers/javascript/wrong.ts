// Calls that must not compile: each line that ends in a number of an error of
// tsc has this error, and no other line has any.
import createClient from "openapi-fetch";
import type { paths } from "./plants.js";

const client = createClient<paths>({ baseUrl: "http://localhost" });

client.POST("/plants", { body: { id: "1", name: "Fern" } }); // TS2322
client.POST("/plants", { body: { id: 1, name: 2 } }); // TS2322
client.POST("/plants", { body: { id: 1, name: "Fern", tag: null } }); // TS2322
client.POST("/plants", { body: { name: "Fern" } }); // TS2322
client.POST("/plants", { body: { id: 1 } }); // TS2322
client.POST("/plants", {}); // TS2345
client.POST("/plants"); // TS2554
client.POST("/plant", { body: { id: 1, name: "Fern" } }); // TS2345
client.GET("/plants"); // TS2345

const answer = await client.POST("/plants", { body: { id: 1, name: "Fern" } });
answer.data.name; // TS18048
if (answer.error !== undefined) {
	answer.error.code; // TS2339
	const number: string = answer.error.error; // TS2322
} else {
	answer.data.id; // TS2339
	const tag: string = answer.data.tag; // TS2322
}
