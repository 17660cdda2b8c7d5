"use strict";
// Nothing is asked of another site: the validator would be.
SwaggerUIBundle({
	url: "../openapi.json",
	dom_id: "#page",
	validatorUrl: null,
});
