/*
 * fuzz_credential: the Authorization header against the model.
 */
#include <string.h>

#include "fuzz.h"
#include "http/credential.h"
#include "model.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *value = malloc(size + 1);
	struct credential found = { 0 };
	const char *expected = NULL;
	size_t expected_len = 0;
	enum http_error error;
	int number;

	REQUIRE(value != NULL);
	if (size > 0)
		memcpy(value, data, size);
	value[size] = '\0';
	error = credential_read(value, &found);
	number = model_credential(value, &expected, &expected_len);
	if (number == 0) {
		REQUIRE(error == HTTP_OK);
		REQUIRE(found.token == expected && found.len == expected_len);
	} else
		REQUIRE(error != HTTP_OK && errors_number(error) == number);
	free(value);
	REQUIRE(credential_read(NULL, &found) == HTTP_CREDENTIAL_MISSING);
	return 0;
}
