/*
 * CSV: every short text against a model that goes byte by byte, and what the
 * model is too small for.
 */
#include "unit.h"

#include "pure/csv.h"

#define TEXT_MAX 7
#define FIELDS 2

static const char alphabet[] = { 'a', ',', '"', '\r', '\n', ' ' };
#define LETTERS COUNT(alphabet)

struct outcome {
	bool good;
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

/* The model: one state, one byte at a time, and an end, here -1. */
static struct outcome
model(const char *text, size_t len)
{
	enum { START, BARE, QUOTED, CLOSED, CR, WRONG } in = START;
	struct outcome out = { .n = 1 };
	struct outcome_field *field = out.fields;

	for (size_t i = 0; i <= len; i++) {
		int c = i < len ? text[i] : -1;

		if (c == -1 || (c == '\n' && in != QUOTED)) {
			bool bad = in == QUOTED || in == WRONG ||
				   (in == CR && c == -1) || out.n > FIELDS;

			out.good = !bad;
			break;
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
compare_with_model(const char *text, size_t len)
{
	struct outcome expected = model(text, len);
	struct csv_field fields[FIELDS];
	size_t n = FIELDS;
	char *copy = exact_copy(text, len);
	const char *wrong = csv_record_split(copy, len, fields, &n);

	if ((wrong == NULL) != expected.good)
		fail_msg("'%.*s': %s", (int)len, text, wrong);
	if (wrong == NULL) {
		assert_int_equal(n, expected.n);
		for (size_t i = 0; i < n; i++) {
			const struct outcome_field *is = &expected.fields[i];
			assert_int_equal(
			    fields[i].text != NULL, is->len > 0 || is->quoted);
			assert_int_equal(fields[i].len, is->len);
			if (is->len > 0)
				assert_memory_equal(
				    fields[i].text, is->text, is->len);
		}
	} else
		assert_int_equal(n, FIELDS);
	free(copy);
}

TEST(every_short_text_is_split_as_the_model_says)
{
	char text[TEXT_MAX];

	for (size_t len = 0; len <= TEXT_MAX; len++) {
		for (unsigned i = 0; i < count_of(len); i++) {
			spell(i, len, text);
			compare_with_model(text, len);
		}
	}
}

/* Print the fields as a record and expect to get them back. */
static void
round_trip(const char *const *texts, const size_t *lens, size_t n)
{
	char buf[FIELDS * (2 * TEXT_MAX + 3)];
	struct csv_field fields[FIELDS];
	size_t len = 0, count = FIELDS;

	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf[len++] = ',';
		size_t printed = csv_field_print(texts[i], lens[i], buf + len);
		assert_true(printed <= 2 * lens[i] + 2);
		len += printed;
	}
	buf[len++] = '\n';
	assert_null(csv_record_split(buf, len, fields, &count));
	assert_int_equal(count, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(fields[i].len, lens[i]);
		assert_non_null(fields[i].text);
		assert_memory_equal(fields[i].text, texts[i], lens[i]);
	}
}

TEST(every_short_field_comes_back_as_it_was_printed)
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

TEST(a_field_is_quoted_only_where_it_has_to_be)
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

TEST(a_field_may_hold_any_byte_but_those_of_the_form)
{
	char buf[260] = { 0 };
	struct csv_field field;
	size_t n = 1, len = 0;

	for (int c = 0; c <= UINT8_MAX; c++)
		if (strchr(",\"\r\n", c) == NULL || c == '\0')
			buf[len++] = (char)c;
	buf[len] = '\n';
	assert_null(csv_record_split(buf, len + 1, &field, &n));
	assert_int_equal(n, 1);
	assert_int_equal(field.len, 252);
	assert_ptr_equal(field.text, buf);
}

TEST(a_refusal_has_its_reason)
{
	static const char *const cases[][2] = {
		{ "a\"b\"\n", "a quote or a CR in the wrong place" },
		{ "\"a\"b\n", "a quote or a CR in the wrong place" },
		{ "\"a\" ,b\n", "a quote or a CR in the wrong place" },
		{ "a\rb\n", "a quote or a CR in the wrong place" },
		{ "\"a\"\rb\n", "a quote or a CR in the wrong place" },
		{ "a,\"b\n", "a quote that is never closed" },
		{ "a,b,c\n", "too many fields" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct csv_field fields[FIELDS];
		size_t n = FIELDS, len = strlen(cases[i][0]);
		char buf[64];

		memcpy(buf, cases[i][0], len);
		assert_string_equal(
		    csv_record_split(buf, len, fields, &n), cases[i][1]);
	}
}

/* The place behind a text says whether a line break behind it ends a record. */
TEST(a_place_in_quotes_is_one_where_a_record_goes_on)
{
	static const char letters[] = { 'a', ',', '"', '\r' };
	struct csv_field fields[TEXT_MAX + 1];
	char text[TEXT_MAX + 1];
	size_t seen = 0;

	for (size_t len = 0; len <= TEXT_MAX; len++)
		for (size_t all = 0; all >> 2 * len == 0; all++) {
			enum csv_place place = CSV_FIELD_BEGINS;
			size_t n = TEXT_MAX + 1;

			for (size_t i = 0; i < len; i++) {
				text[i] = letters[all >> 2 * i & 3];
				place = csv_next_place(place, text[i]);
			}
			text[len] = '\n';
			const char *wrong =
			    csv_record_split(text, len + 1, fields, &n);
			assert_int_equal(
			    wrong != NULL && strstr(wrong, "never closed"),
			    place == CSV_IN_QUOTES);
			seen += place == CSV_IN_QUOTES;
		}
	assert_true(seen > 0);
}
