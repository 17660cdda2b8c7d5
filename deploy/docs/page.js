"use strict";

// Swagger UI has dark colors, but switches only by a class.
const dark = matchMedia("(prefers-color-scheme: dark)");
const setColors = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", setColors);
setColors();

// The store is on the server that the page comes from.
const servers = `"servers": [{ "url": "${new URL("..", location).href.replace(/\/$/, "")}" }]`;

SwaggerUIBundle({
	dom_id: "#page",
	url: "../openapi.json",
	// Otherwise the page would contact another site.
	validatorUrl: null,
	// A number that JavaScript would round becomes a string, so no bound is shown.
	responseInterceptor: (answer) => {
		if (answer.url.endsWith("/openapi.json")) {
			answer.text = answer.text
				.replace(/"servers": \[[^\]]*\]/, () => servers)
				.replace(/-?\d{16,}(?=,?$)/gm, '"$&"');
		}
		return answer;
	},
});
