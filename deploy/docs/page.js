"use strict";

// Swagger UI has colours for the dark, and goes by a class alone.
const dark = matchMedia("(prefers-color-scheme: dark)");
const setColors = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", setColors);
setColors();

// The store is where the page is.
const servers = `"servers": [{ "url": "${new URL("..", location).href.replace(/\/$/, "")}" }]`;

SwaggerUIBundle({
	dom_id: "#page",
	url: "../openapi.json",
	// Otherwise another site would be asked.
	validatorUrl: null,
	// A number that JavaScript rounds becomes text, of which no bound is shown.
	responseInterceptor: (answer) => {
		if (answer.url.endsWith("/openapi.json")) {
			answer.text = answer.text
				.replace(/"servers": \[[^\]]*\]/, () => servers)
				.replace(/-?\d{16,}(?=,?$)/gm, '"$&"');
		}
		return answer;
	},
});
