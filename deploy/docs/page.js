"use strict";

SwaggerUIBundle({
	dom_id: "#page",
	url: "../openapi.json",
	// Otherwise another site would be asked.
	validatorUrl: null,
	// A number that JavaScript rounds becomes text, of which no bound is shown.
	responseInterceptor: (answer) => {
		if (answer.url.endsWith("/openapi.json")) {
			answer.text = answer.text.replace(/-?\d{16,}(?=,?$)/gm, '"$&"');
		}
		return answer;
	},
});
