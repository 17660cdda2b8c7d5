/*
 * CSV: every short text against a model that goes byte by byte, and what the
 * model is too small for.
 */
#include "unit.h"

#include <stdbool.h>

#include "pure/csv.h"

#define TEXT_MAX 7
#define FIELDS 2

static const char alphabet[] = { 'a', ',', '"', '\r', '\n', ' ' };
#define LETTERS COUNT(alphabet)

struct outcome {
	enum csv_result result;
	size_t used;
	size_t n;
	struct outcome_field {
		char text[TEXT_MAX];
		size_t len;
		int quoted;
	} fields[TEXT_MAX + 1];
};

/* The text number `number` of those with `len` letters. */
static void
spell(unsigned number, size_t len, char *text)
{
	for (size_t i = 0; i < len; i++) {
		text[i] = alphabet[number % LETTERS];
		number /= LETTERS;
	}
}

static unsigned
count_of(size_t len)
{
	unsigned count = 1;

	while (len-- > 0)
		count *= LETTERS;
	return count;
}

/*
 * The model: one state, one byte at a time.  A text that is all there is reads
 * as if an end, here -1, followed it.
 */
static struct outcome
model(const char *text, size_t len, bool last)
{
	enum { START, BARE, QUOTED, CLOSED, CR, WRONG } in = START;
	struct outcome out = { .result = CSV_MORE, .n = 1 };
	struct outcome_field *field = out.fields;

	if (len == 0)
		return out;
	for (size_t i = 0; i < len + last; i++) {
		int c = i < len ? text[i] : -1;

		if (c == -1 || (c == '\n' && in != QUOTED)) {
			bool bad = in == QUOTED || in == WRONG ||
				   (in == CR && c == -1) || out.n > FIELDS;

			out.result = bad ? CSV_BAD : CSV_RECORD;
			out.used = i + (c == '\n');
			return out;
		}
		if (in == WRONG)
			continue;
		if (in == CR)
			in = WRONG;
		else if (c == '"' && (in == START || in == CLOSED)) {
			if (in == CLOSED)
				field->text[field->len++] = '"';
			field->quoted = 1;
			in = QUOTED;
		} else if (c == '"')
			in = in == QUOTED ? CLOSED : WRONG;
		else if (in != QUOTED && c == ',') {
			field = &out.fields[out.n++];
			in = START;
		} else if (in != QUOTED && c == '\r')
			in = CR;
		else if (in == CLOSED)
			in = WRONG;
		else {
			field->text[field->len++] = (char)c;
			in = in == START ? BARE : in;
		}
	}
	return out;
}

static void
compare_with_model(const char *text, size_t len, bool last)
{
	struct outcome expected = model(text, len, last);
	struct csv_field fields[FIELDS];
	const char *reason = NULL;
	size_t n = FIELDS, used = SIZE_MAX;
	char *copy = exact_copy(text, len);
	enum csv_result result =
	    csv_record_split(copy, len, last, fields, &n, &used, &reason);
	if (result != expected.result)
		fail_msg("'%.*s': %d, not %d", (int)len, text, (int)result,
		    (int)expected.result);
	if (result == CSV_MORE)
		assert_int_equal(used, SIZE_MAX);
	else
		assert_int_equal(used, expected.used);
	assert_int_equal(reason != NULL, result == CSV_BAD);
	if (result == CSV_RECORD) {
		assert_int_equal(n, expected.n);
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(
			    fields[i].quoted, expected.fields[i].quoted);
			assert_int_equal(fields[i].len, expected.fields[i].len);
			assert_memory_equal(fields[i].text,
			    expected.fields[i].text, fields[i].len);
		}
	} else {
		assert_int_equal(n, FIELDS);
		if (len > 0)
			assert_memory_equal(copy, text, len);
	}
	free(copy);
}

static void
every_short_text_is_split_as_the_model_says(void **state)
{
	char text[TEXT_MAX];

	for (size_t len = 0; len <= TEXT_MAX; len++) {
		for (unsigned i = 0; i < count_of(len); i++) {
			spell(i, len, text);
			compare_with_model(text, len, false);
			compare_with_model(text, len, true);
		}
	}
}

static void
what_follows_a_record_does_not_change_it(void **state)
{
	struct csv_field fields[2][FIELDS];
	const char *reason[2];
	size_t n[2], used[2];
	char text[TEXT_MAX], alone[TEXT_MAX];

	for (unsigned i = 0; i < count_of(TEXT_MAX); i++) {
		n[0] = n[1] = FIELDS;
		spell(i, TEXT_MAX, text);
		memcpy(alone, text, TEXT_MAX);
		enum csv_result whole = csv_record_split(text, TEXT_MAX, false,
		    fields[0], &n[0], &used[0], &reason[0]);
		if (whole == CSV_MORE)
			continue;
		assert_int_equal(csv_record_split(alone, used[0], false,
				     fields[1], &n[1], &used[1], &reason[1]),
		    whole);
		assert_int_equal(used[1], used[0]);
		assert_int_equal(n[1], n[0]);
		if (whole == CSV_BAD)
			assert_string_equal(reason[1], reason[0]);
	}
}

/* Print the fields as a record and expect to get them back. */
static void
round_trip(const char *const *texts, const size_t *lens, size_t n)
{
	char buf[FIELDS * (2 * TEXT_MAX + 3)];
	struct csv_field fields[FIELDS];
	const char *reason;
	size_t len = 0, used, count = FIELDS;

	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf[len++] = ',';
		size_t printed = csv_field_print(texts[i], lens[i], buf + len);
		assert_true(printed <= 2 * lens[i] + 2);
		len += printed;
	}
	buf[len++] = '\n';
	assert_int_equal(
	    csv_record_split(buf, len, false, fields, &count, &used, &reason),
	    CSV_RECORD);
	assert_int_equal(used, len);
	assert_int_equal(count, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(fields[i].len, lens[i]);
		assert_memory_equal(fields[i].text, texts[i], lens[i]);
		assert_true(lens[i] > 0 || fields[i].quoted);
	}
}

static void
every_short_field_comes_back_as_it_was_printed(void **state)
{
	static const char other[] = "\"\",\r\n";
	char text[TEXT_MAX];
	const char *texts[FIELDS] = { text, other };
	size_t lens[FIELDS] = { 0, sizeof(other) - 1 };

	for (size_t len = 0; len < TEXT_MAX; len++) {
		for (unsigned i = 0; i < count_of(len); i++) {
			spell(i, len, text);
			lens[0] = len;
			round_trip(texts, lens, 1);
			round_trip(texts, lens, 2);
		}
	}
}

static void
a_field_is_quoted_only_where_it_has_to_be(void **state)
{
	static const char *const cases[][2] = { { "rose", "rose" },
		{ "two words", "two words" },
		{ "\xc3\xa9t\xc3\xa9\t\x01'", "\xc3\xa9t\xc3\xa9\t\x01'" },
		{ "", "\"\"" }, { " a", "\" a\"" }, { "a ", "\"a \"" },
		{ "a,b", "\"a,b\"" }, { "a\"b", "\"a\"\"b\"" },
		{ "a\rb", "\"a\rb\"" }, { "a\nb", "\"a\nb\"" } };
	char buf[64];

	for (size_t i = 0; i < COUNT(cases); i++) {
		size_t len =
		    csv_field_print(cases[i][0], strlen(cases[i][0]), buf);

		assert_bytes(buf, len, cases[i][1]);
	}
}

static void
a_field_may_hold_any_byte_but_those_of_the_form(void **state)
{
	char buf[260] = { 0 };
	struct csv_field field;
	const char *reason;
	size_t n = 1, used, len = 0;

	for (int c = 0; c <= UINT8_MAX; c++)
		if (strchr(",\"\r\n", c) == NULL || c == '\0')
			buf[len++] = (char)c;
	buf[len] = '\n';
	assert_int_equal(
	    csv_record_split(buf, len + 1, false, &field, &n, &used, &reason),
	    CSV_RECORD);
	assert_int_equal(n, 1);
	assert_int_equal(field.len, 252);
	assert_ptr_equal(field.text, buf);
}

static void
a_refusal_has_its_reason(void **state)
{
	static const char *const cases[][2] = {
		{ "a\"b\"\n", "a quote inside a field without quotes" },
		{ "\"a\"b\n", "text behind a closing quote" },
		{ "\"a\" ,b\n", "text behind a closing quote" },
		{ "a\rb\n", "a CR without LF outside quotes" },
		{ "\"a\"\rb\n", "a CR without LF outside quotes" },
		{ "a,\"b\n", "a quote that is never closed" },
		{ "a,b,c\n", "too many fields" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct csv_field fields[FIELDS];
		const char *reason = NULL;
		size_t n = FIELDS, used, len = strlen(cases[i][0]);
		char buf[64];

		memcpy(buf, cases[i][0], len);
		assert_int_equal(csv_record_split(buf, len, true, fields, &n,
				     &used, &reason),
		    CSV_BAD);
		assert_string_equal(reason, cases[i][1]);
	}
}

/* The place behind a text says whether a line break behind it ends a record. */
static void
a_place_in_quotes_is_one_where_a_record_goes_on(void **state)
{
	static const char letters[] = { 'a', ',', '"', '\r' };
	struct csv_field fields[TEXT_MAX + 1];
	char text[TEXT_MAX + 1];
	const char *reason;
	size_t seen = 0;

	for (size_t len = 0; len <= TEXT_MAX; len++)
		for (size_t all = 0; all >> 2 * len == 0; all++) {
			enum csv_place place = CSV_FIELD_BEGINS;
			size_t n = TEXT_MAX + 1, used;

			for (size_t i = 0; i < len; i++) {
				text[i] = letters[all >> 2 * i & 3];
				place = csv_next_place(place, text[i]);
			}
			text[len] = '\n';
			enum csv_result result = csv_record_split(
			    text, len + 1, 0, fields, &n, &used, &reason);
			assert_int_equal(
			    result == CSV_MORE, place == CSV_IN_QUOTES);
			seen += place == CSV_IN_QUOTES;
		}
	assert_true(seen > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_short_text_is_split_as_the_model_says),
		TEST(what_follows_a_record_does_not_change_it),
		TEST(every_short_field_comes_back_as_it_was_printed),
		TEST(a_field_is_quoted_only_where_it_has_to_be),
		TEST(a_field_may_hold_any_byte_but_those_of_the_form),
		TEST(a_refusal_has_its_reason),
		TEST(a_place_in_quotes_is_one_where_a_record_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
