/*
 * config: each setting's default, its bounds, and what a bad one is told.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/config.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const names[] = { "PLANT_STORE_DIR", "PLANT_STORE_TOKENS",
	"PLANT_STORE_BASE_PATH", "PLANT_STORE_BODY_BYTES_MAX",
	"PLANT_STORE_THREADS", "PLANT_STORE_STATUS", "PLANT_STORE_LOG_LEVEL" };

/* Each test begins without any of them, and leaves none. */
static int
clear(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(names); i++)
		unsetenv(names[i]);
	return 0;
}

static void
set(const char *name, const char *value)
{
	assert_int_equal(setenv(name, value, 1), 0);
}

static struct config
read_good(void)
{
	struct config config;
	char error[512] = "";

	if (config_read(&config, error, sizeof error) != 0)
		fail_msg("%s", error);
	return config;
}

static struct config
read_with(const char *name, const char *value)
{
	set(name, value);
	return read_good();
}

static void
assert_defaults(const struct config *config)
{
	cpu_set_t cpus;
	unsigned threads;

	assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	threads = ((unsigned)CPU_COUNT(&cpus) + 1) / 2;
	assert_string_equal(config->dir, "/var/lib/plant-store");
	assert_string_equal(config->tokens, "/etc/plant-store/tokens");
	assert_string_equal(config->base_path, "");
	assert_int_equal(config->body_bytes_max, 65536);
	assert_int_equal(config->threads, threads < 64 ? threads : 64);
	assert_false(config->contract_status);
	assert_int_equal(config->log_level, LOG_AT_INFO);
}

static void
absent_settings_have_their_defaults(void **state)
{
	struct config config = read_good();

	(void)state;
	assert_defaults(&config);
}

static void
empty_settings_count_as_absent(void **state)
{
	struct config config;

	(void)state;
	for (size_t i = 0; i < COUNT(names); i++)
		set(names[i], "");
	config = read_good();
	assert_defaults(&config);
}

static void
paths_are_taken_as_they_stand(void **state)
{
	struct config config;

	(void)state;
	set("PLANT_STORE_DIR", "/srv/plants and more/");
	set("PLANT_STORE_TOKENS", "/");
	config = read_good();
	assert_string_equal(config.dir, "/srv/plants and more/");
	assert_string_equal(config.tokens, "/");
}

static void
base_path_is_taken_and_a_slash_alone_is_the_root(void **state)
{
	static const char *const pairs[][2] = {
		{ "/", "" },
		{ "/api", "/api" },
		{ "/api/v1", "/api/v1" },
		{ "/a b/\xc3\xa9", "/a b/\xc3\xa9" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(pairs); i++) {
		struct config config =
		    read_with("PLANT_STORE_BASE_PATH", pairs[i][0]);

		assert_string_equal(config.base_path, pairs[i][1]);
	}
}

static void
body_limit_is_taken_at_its_bounds_and_between(void **state)
{
	const char *name = "PLANT_STORE_BODY_BYTES_MAX";

	(void)state;
	assert_int_equal(read_with(name, "64").body_bytes_max, 64);
	assert_int_equal(read_with(name, "4096").body_bytes_max, 4096);
	assert_int_equal(
	    read_with(name, "1048576").body_bytes_max, CONFIG_BODY_BYTES_MAX);
}

static void
threads_are_taken_at_their_bounds_and_between(void **state)
{
	(void)state;
	assert_int_equal(read_with("PLANT_STORE_THREADS", "1").threads, 1);
	assert_int_equal(read_with("PLANT_STORE_THREADS", "7").threads, 7);
	assert_int_equal(read_with("PLANT_STORE_THREADS", "64").threads, 64);
}

static void
status_is_http_or_contract(void **state)
{
	(void)state;
	assert_false(read_with("PLANT_STORE_STATUS", "http").contract_status);
	assert_true(
	    read_with("PLANT_STORE_STATUS", "contract").contract_status);
}

static void
log_level_is_one_of_four(void **state)
{
	const char *name = "PLANT_STORE_LOG_LEVEL";

	(void)state;
	assert_int_equal(read_with(name, "error").log_level, LOG_AT_ERROR);
	assert_int_equal(read_with(name, "warning").log_level, LOG_AT_WARNING);
	assert_int_equal(read_with(name, "info").log_level, LOG_AT_INFO);
	assert_int_equal(read_with(name, "debug").log_level, LOG_AT_DEBUG);
}

static const struct {
	const char *name, *value, *allowed;
} bad[] = {
	{ "PLANT_STORE_DIR", "plants", "absolute path" },
	{ "PLANT_STORE_DIR", "./plants", "absolute path" },
	{ "PLANT_STORE_DIR", " /plants", "absolute path" },
	{ "PLANT_STORE_TOKENS", "tokens", "absolute path" },
	{ "PLANT_STORE_TOKENS", "../tokens", "absolute path" },
	{ "PLANT_STORE_BASE_PATH", "api", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "/api/", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "//", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "//api", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "/api//v1", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "/api?a=b", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "/api#a", "/api/v1" },
	{ "PLANT_STORE_BASE_PATH", "http://a/b", "/api/v1" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "63", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "0", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "1048577", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "-1", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "+4096", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", " 4096", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "4096 ", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "4k", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "0x1000", "64 to 1048576" },
	{ "PLANT_STORE_BODY_BYTES_MAX", "4096.0", "64 to 1048576" },
	/* 2^64 and a good value, in case it wraps. */
	{ "PLANT_STORE_BODY_BYTES_MAX", "18446744073709555712",
	    "64 to 1048576" },
	{ "PLANT_STORE_THREADS", "0", "1 to 64" },
	{ "PLANT_STORE_THREADS", "65", "1 to 64" },
	{ "PLANT_STORE_THREADS", "-1", "1 to 64" },
	{ "PLANT_STORE_THREADS", "two", "1 to 64" },
	/* 2^32 and 1 */
	{ "PLANT_STORE_THREADS", "4294967297", "1 to 64" },
	{ "PLANT_STORE_STATUS", "HTTP", "http or contract" },
	{ "PLANT_STORE_STATUS", "contract ", "http or contract" },
	{ "PLANT_STORE_STATUS", "400", "http or contract" },
	{ "PLANT_STORE_LOG_LEVEL", "INFO", "error, warning, info or debug" },
	{ "PLANT_STORE_LOG_LEVEL", "warn", "error, warning, info or debug" },
	{ "PLANT_STORE_LOG_LEVEL", "2", "error, warning, info or debug" },
};

static void
bad_value_is_refused_with_its_name_itself_and_what_is_allowed(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct config config;
		char error[512] = "";
		char quoted[80];

		snprintf(quoted, sizeof quoted, "'%s'", bad[i].value);
		set(bad[i].name, bad[i].value);
		if (config_read(&config, error, sizeof error) != -1)
			fail_msg("%s=%s", bad[i].name, bad[i].value);
		assert_memory_equal(error, bad[i].name, strlen(bad[i].name));
		assert_non_null(strstr(error, quoted));
		assert_non_null(strstr(error, bad[i].allowed));
		unsetenv(bad[i].name);
	}
}

static void
good_settings_beside_a_bad_one_do_not_help(void **state)
{
	struct config config;
	char error[512];

	(void)state;
	set("PLANT_STORE_DIR", "/srv/plants");
	set("PLANT_STORE_THREADS", "2");
	set("PLANT_STORE_LOG_LEVEL", "loud");
	assert_int_equal(config_read(&config, error, sizeof error), -1);
	assert_non_null(strstr(error, "PLANT_STORE_LOG_LEVEL: 'loud'"));
}

static void
refusal_leaves_the_config_untouched(void **state)
{
	struct config config = { .threads = 12345 };
	char error[512];

	(void)state;
	set("PLANT_STORE_STATUS", "other");
	assert_int_equal(config_read(&config, error, sizeof error), -1);
	assert_int_equal(config.threads, 12345);
	assert_null(config.dir);
}

static void
message_is_one_line_and_fits_whatever_the_value(void **state)
{
	struct config config;
	char value[2000];
	char error[256];

	(void)state;
	memset(value, '\n', sizeof value - 1);
	value[sizeof value - 1] = '\0';
	set("PLANT_STORE_THREADS", value);
	assert_int_equal(config_read(&config, error, sizeof error), -1);
	assert_null(strchr(error, '\n'));
	/* A long value is cut, and the remedy still said. */
	assert_non_null(strstr(error, "1 to 64"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
		    absent_settings_have_their_defaults, clear, clear),
		cmocka_unit_test_setup_teardown(
		    empty_settings_count_as_absent, clear, clear),
		cmocka_unit_test_setup_teardown(
		    paths_are_taken_as_they_stand, clear, clear),
		cmocka_unit_test_setup_teardown(
		    base_path_is_taken_and_a_slash_alone_is_the_root, clear,
		    clear),
		cmocka_unit_test_setup_teardown(
		    body_limit_is_taken_at_its_bounds_and_between, clear,
		    clear),
		cmocka_unit_test_setup_teardown(
		    threads_are_taken_at_their_bounds_and_between, clear,
		    clear),
		cmocka_unit_test_setup_teardown(
		    status_is_http_or_contract, clear, clear),
		cmocka_unit_test_setup_teardown(
		    log_level_is_one_of_four, clear, clear),
		cmocka_unit_test_setup_teardown(
		    bad_value_is_refused_with_its_name_itself_and_what_is_allowed,
		    clear, clear),
		cmocka_unit_test_setup_teardown(
		    good_settings_beside_a_bad_one_do_not_help, clear, clear),
		cmocka_unit_test_setup_teardown(
		    refusal_leaves_the_config_untouched, clear, clear),
		cmocka_unit_test_setup_teardown(
		    message_is_one_line_and_fits_whatever_the_value, clear,
		    clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
