/*
 * config: each setting's default, its bounds, and what a bad one is told.
 */
#include "unit.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/config.h"

static const char *const names[] = { "PLANT_STORE_DIR", "PLANT_STORE_TOKENS",
	"PLANT_STORE_BASE_PATH", "PLANT_STORE_BODY_BYTES_MAX",
	"PLANT_STORE_THREADS", "PLANT_STORE_STATUS", "PLANT_STORE_LOG_LEVEL",
	"PLANT_STORE_LOG_FORMAT", "PLANT_STORE_CORS_ORIGINS",
	"PLANT_STORE_METRICS_PATH", "PLANT_STORE_HEALTH_PATH",
	"PLANT_STORE_DATABASE", "PLANT_STORE_SANDBOX" };

static void
clear(char *unused)
{
	for (size_t i = 0; i < COUNT(names); i++)
		unsetenv(names[i]);
}

/* Each test begins without any of them, and leaves none. */
#define CONFIG_TEST(name) FIXTURE_TEST(name, char, unused, clear, clear)

static void
set(const char *name, const char *value)
{
	assert_int_equal(setenv(name, value, 1), 0);
}

/* What is logged of settings that are refused. */
static const char *
refused(void)
{
	struct config config = { .threads = 12345 };

	stderr_capture();
	enum fault fault = config_read(&config);
	const char *text = stderr_captured();
	assert_int_equal(fault, FAULT_SETUP);
	assert_int_equal(config.threads, 12345);
	assert_null(config.dir);
	return text;
}

static const char *
warned(void)
{
	stderr_capture();
	config_warn_unknown();
	return stderr_captured();
}

static struct config
read_good(void)
{
	struct config config;

	assert_int_equal(config_read(&config), FAULT_NONE);
	return config;
}

static struct config
read_with(const char *name, const char *value)
{
	set(name, value);
	return read_good();
}

CONFIG_TEST(absent_and_empty_settings_have_their_defaults)
{
	cpu_set_t cpus;
	unsigned threads;

	assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	threads = ((unsigned)CPU_COUNT(&cpus) + 1) / 2;
	for (int empty = 0; empty < 2; empty++) {
		struct config config = read_good();

		assert_string_equal(config.dir, "/var/lib/plant-store");
		assert_string_equal(config.tokens, "/etc/plant-store/tokens");
		assert_string_equal(config.base_path, "");
		assert_int_equal(config.body_bytes_max, 65536);
		assert_int_equal(config.threads, threads < 64 ? threads : 64);
		assert_false(config.contract_status);
		assert_true(config.sandbox);
		assert_int_equal(config.log_level, LOG_AT_INFO);
		assert_string_equal(config.origins, "");
		assert_string_equal(config.metrics_path, "");
		assert_string_equal(config.health_path, "");
		for (size_t i = 0; i < COUNT(names); i++)
			set(names[i], "");
	}
}

CONFIG_TEST(paths_are_kept_and_a_base_path_of_a_slash_is_the_root)
{
	static const char *const pairs[][2] = { { "/", "" }, { "/api", "/api" },
		{ "/api/v1", "/api/v1" },
		{ "/a b/\xc3\xa9", "/a b/\xc3\xa9" } };
	struct config config;

	set("PLANT_STORE_DIR", "/srv/plants and more/");
	set("PLANT_STORE_TOKENS", "/");
	for (size_t i = 0; i < COUNT(pairs); i++) {
		config = read_with("PLANT_STORE_BASE_PATH", pairs[i][0]);
		assert_string_equal(config.base_path, pairs[i][1]);
		assert_string_equal(config.dir, "/srv/plants and more/");
		assert_string_equal(config.tokens, "/");
	}
}

CONFIG_TEST(numbers_and_words_are_accepted_at_their_bounds_and_between)
{
	static const char *const levels[] = { "error", "warning", "info",
		"debug" };
	static const size_t sizes[] = { 64, 4096, CONFIG_BODY_BYTES_MAX };
	static const unsigned threads[] = { 1, 7, 64 };
	char text[32];

	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof text, "%zu", sizes[i]);
		assert_int_equal(read_with("PLANT_STORE_BODY_BYTES_MAX", text)
				     .body_bytes_max,
		    sizes[i]);
		snprintf(text, sizeof text, "%u", threads[i]);
		assert_int_equal(
		    read_with("PLANT_STORE_THREADS", text).threads, threads[i]);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(
		    read_with("PLANT_STORE_LOG_LEVEL", levels[i]).log_level, i);
	assert_false(read_with("PLANT_STORE_STATUS", "http").contract_status);
	assert_true(
	    read_with("PLANT_STORE_STATUS", "contract").contract_status);
	assert_true(read_with("PLANT_STORE_SANDBOX", "on").sandbox);
	assert_false(read_with("PLANT_STORE_SANDBOX", "off").sandbox);
}

CONFIG_TEST(origins_are_kept_as_they_are)
{
	static const char *const lists[] = { "https://a.example",
		"http://localhost:3000,https://b.example",
		" , https://xn--a-1.b ,,http://10.0.0.1:1  ",
		"http://[::1]:8080 http://[fe80::1]", "app+x.y-z1://host",
		", ," };
	char longest[400] = "https-16-letters://", list[900];

	for (size_t i = 0; i < COUNT(lists); i++)
		assert_string_equal(
		    read_with("PLANT_STORE_CORS_ORIGINS", lists[i]).origins,
		    lists[i]);
	memset(longest + strlen(longest), 'h', 253);
	strcat(longest, ":65535");
	snprintf(list, sizeof list, "%s %s", longest, longest);
	read_with("PLANT_STORE_CORS_ORIGINS", list);
}

CONFIG_TEST(paths_for_an_operator_are_apart_from_the_plants_and_each_other)
{
	static const struct {
		const char *base, *metrics, *health;
		bool good;
	} rows[] = {
		{ "", "/metrics", "/health", true },
		{ "/api", "/api-metrics", "/plants", true },
		{ "", "/plantsx", "", true },
		{ "", "/plants", "", false },
		{ "", "/m", "/plants/health", false },
		{ "/api", "/api", "", false },
		{ "/api", "/api/metrics", "", false },
		{ "/api", "/m", "/api/plants", false },
		{ "", "/m", "/m", false },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		set("PLANT_STORE_BASE_PATH", rows[i].base);
		set("PLANT_STORE_METRICS_PATH", rows[i].metrics);
		set("PLANT_STORE_HEALTH_PATH", rows[i].health);
		if (!rows[i].good) {
			assert_contains(refused(), "_PATH: '");
			continue;
		}
		struct config config = read_good();
		assert_string_equal(config.metrics_path, rows[i].metrics);
		assert_string_equal(config.health_path, rows[i].health);
	}
}

CONFIG_TEST(log_has_its_form_from_the_reading_on)
{
	set("PLANT_STORE_LOG_FORMAT", "json");
	set("PLANT_STORE_THREADS", "\"");
	assert_contains(refused(),
	    "\"message\":\"PLANT_STORE_THREADS: '\\\"' is not allowed");
	clear(NULL);
	read_with("PLANT_STORE_LOG_FORMAT", "text");
	set("PLANT_STORE_THREADS", "x");
	assert_begins(refused(), "plant-store: ");
}

static const struct {
	const char *name, *allowed;
	const char *values[12]; /* NULL behind the last */
} bad[] = {
	{ "PLANT_STORE_DIR", "absolute path",
	    { "plants", "./plants", " /plants" } },
	{ "PLANT_STORE_TOKENS", "absolute path", { "tokens", "../tokens" } },
	{ "PLANT_STORE_BASE_PATH", "/api/v1",
	    { "api", "/api/", "//", "//api", "/api//v1", "/api?a=b", "/api#a",
		"http://a/b" } },
	{ "PLANT_STORE_BODY_BYTES_MAX", "64 to 1048576",
	    { "63", "0", "1048577", "-1", "+4096", " 4096", "4096 ", "4k",
		"0x1000", "4096.0",
		/* 2^64 and a good value */ "18446744073709555712" } },
	{ "PLANT_STORE_THREADS", "1 to 64",
	    { "0", "65", "-1", "two", /* 2^32 + 1 */ "4294967297" } },
	{ "PLANT_STORE_STATUS", "http or contract",
	    { "HTTP", "contract ", "400" } },
	{ "PLANT_STORE_LOG_LEVEL", "error, warning, info or debug",
	    { "INFO", "warn", "2" } },
	{ "PLANT_STORE_LOG_FORMAT", "text or json",
	    { "JSON", "xml", "json " } },
	{ "PLANT_STORE_CORS_ORIGINS", "https://a.example",
	    { "*", "null", "a.example", "https://", "https://*.a.example",
		"https://a.example/", "https://A.example", "https://a:",
		"http://[::1", "http://a:1http://b", "http://a http://b/c" } },
	{ "PLANT_STORE_METRICS_PATH", "such as /metrics",
	    { "metrics", "/", "/m/", "/m?a", "http://a/b" } },
	{ "PLANT_STORE_HEALTH_PATH", "such as /health", { "health", "/h#" } },
	{ "PLANT_STORE_SANDBOX", "on, or off", { "no", "OFF", "off " } },
};

CONFIG_TEST(bad_value_is_refused_with_its_name_itself_and_what_is_allowed)
{
	for (size_t i = 0; i < COUNT(bad); i++)
		EACH_TEXT (value, bad[i].values) {
			const char *line;
			char begin[256];

			snprintf(begin, sizeof begin,
			    "plant-store: %s: '%s' is not", bad[i].name,
			    *value);
			set(bad[i].name, *value);
			line = refused();
			assert_begins(line, begin);
			assert_contains(line, bad[i].allowed);
			unsetenv(bad[i].name);
		}
}

CONFIG_TEST(a_bad_setting_beside_good_ones_leaves_the_config_untouched)
{
	set("PLANT_STORE_DIR", "/srv/plants");
	set("PLANT_STORE_THREADS", "2");
	set("PLANT_STORE_LOG_LEVEL", "loud");
	assert_contains(refused(), "PLANT_STORE_LOG_LEVEL: 'loud'");
}

CONFIG_TEST(message_is_one_line_and_fits_whatever_the_value)
{
	char value[2000];
	const char *line;

	memset(value, '\n', sizeof value - 1);
	value[sizeof value - 1] = '\0';
	set("PLANT_STORE_THREADS", value);
	line = refused();
	assert_string_equal(strchr(line, '\n'), "\n");
	/* A long value is cut, and the remedy still said. */
	assert_contains(line, "1 to 64");
}

CONFIG_TEST(each_unknown_name_is_a_warning_and_no_other)
{
	static const char *const unknown[] = { "PLANT_STORE_DRI",
		"PLANT_STORE_", "PLANT_STORE_DIR2", "PLANT_STORE_DI",
		"PLANT_STORE_dir", "PLANT_STORE_RESPONDERS" };
	static const char *const others[] = { "PLANT_STORE_RESPONDER",
		"PLANT_STOR", "PLANT_STORE", "XPLANT_STORE_DRI",
		CONFIG_FILE_VARIABLE };

	for (size_t i = 0; i < COUNT(names); i++)
		set(names[i], "/");
	for (size_t i = 0; i < COUNT(others); i++)
		set(others[i], "/");
	assert_string_equal(warned(), "");
	for (size_t i = 0; i < COUNT(unknown); i++) {
		const char *line;
		char begin[64];

		set(unknown[i], "value");
		snprintf(begin, sizeof begin, "plant-store: %s: ", unknown[i]);
		line = warned();
		assert_begins(line, begin);
		assert_contains(line, "--help");
		assert_null(strstr(line, "value"));
		unsetenv(unknown[i]);
	}
	for (size_t i = 0; i < COUNT(others); i++)
		unsetenv(others[i]);
}

/* The machine's file, with that text and mode; what it is as a fault. */
static enum fault
add_bytes(const char *text, size_t len, mode_t mode, bool named)
{
	char path[] = "/tmp/plant-store-XXXXXX";
	int file = mkstemp(path);

	assert_int_equal(write(file, text, len), len);
	assert_int_equal(fchmod(file, mode), 0);
	close(file);
	set(CONFIG_FILE_VARIABLE, path);
	stderr_capture();
	enum fault fault = config_use_file(NULL, named);
	assert_int_equal(unlink(path), 0);
	unsetenv(CONFIG_FILE_VARIABLE);
	return fault;
}

static enum fault
add_file(const char *text, mode_t mode, bool named)
{
	return add_bytes(text, strlen(text), mode, named);
}

CONFIG_TEST(the_file_of_the_machine_adds_what_the_environment_does_not_have)
{
	set("PLANT_STORE_TOKENS", "/mine");
	set("PLANT_STORE_BODY_BYTES_MAX", "");
	assert_int_equal(add_file("PLANT_STORE_TOKENS=/theirs\n"
				  "PLANT_STORE_DIR=/first\n"
				  "PLANT_STORE_DIR='/second'\n"
				  "PLANT_STORE_NONE=1\n"
				  "PLANT_STORE_BODY_BYTES_MAX=100\n",
			     0644, false),
	    FAULT_NONE);
	assert_contains(stderr_captured(), "PLANT_STORE_NONE: there is no");
	struct config config = read_good();
	assert_string_equal(config.tokens, "/mine");
	assert_string_equal(config.dir, "/second");
	assert_int_equal(config.body_bytes_max, 100);
}

CONFIG_TEST(a_store_that_is_named_takes_no_other_from_the_file)
{
	static const char *const by[] = { NULL, "PLANT_STORE_DIR",
		"PLANT_STORE_DATABASE" };

	for (size_t i = 0; i < COUNT(by); i++) {
		clear(NULL);
		if (by[i] != NULL)
			set(by[i], "/mine");
		assert_int_equal(add_file("PLANT_STORE_DIR=/theirs\n"
					  "PLANT_STORE_DATABASE=theirs\n"
					  "PLANT_STORE_TOKENS=/theirs\n",
				     0600, by[i] == NULL),
		    FAULT_NONE);
		assert_string_equal(stderr_captured(), "");
		struct config config = read_good();
		assert_string_equal(
		    config.dir, i == 1 ? "/mine" : "/var/lib/plant-store");
		assert_true(i == 2 ? strcmp(config.database, "/mine") == 0
				   : config.database == NULL);
		assert_string_equal(config.tokens, "/theirs");
	}
}

CONFIG_TEST(a_line_of_the_file_has_any_length_and_no_nul)
{
	char text[20000];

	/* Cut into pieces it would have a setting. */
	memset(text, '#', sizeof(text));
	strcpy(text + 8191, "PLANT_STORE_DIR=/theirs\n");
	assert_int_equal(add_file(text, 0600, false), FAULT_NONE);
	assert_string_equal(stderr_captured(), "");
	assert_null(getenv("PLANT_STORE_DIR"));
	assert_int_equal(
	    add_bytes("PLANT_STORE_DIR=/a\0b\n", 21, 0600, false), FAULT_SETUP);
	assert_contains(stderr_captured(), "line 1: ");
	assert_null(getenv("PLANT_STORE_DIR"));
}

CONFIG_TEST(a_file_that_cannot_be_opened_is_reported_unless_there_is_none)
{
	set(CONFIG_FILE_VARIABLE, "/proc/self/fd/none/file");
	assert_int_equal(config_use_file(NULL, true), FAULT_NONE);
	set(CONFIG_FILE_VARIABLE, "/dev/null/file");
	stderr_capture();
	assert_int_equal(config_use_file(NULL, true), FAULT_ABSENT);
	assert_contains(stderr_captured(), "cannot open: Not a directory");
	unsetenv(CONFIG_FILE_VARIABLE);
}

CONFIG_TEST(root_does_not_believe_a_file_that_others_can_write)
{
	static const mode_t modes[] = { 0660, 0602 };

	for (size_t i = 0; geteuid() == 0 && i < COUNT(modes); i++) {
		assert_int_equal(
		    add_file("PLANT_STORE_DIR=/theirs\n", modes[i], i == 0),
		    FAULT_SETUP);
		assert_contains(stderr_captured(), "chmod go-w");
		assert_null(getenv("PLANT_STORE_DIR"));
	}
}

CONFIG_TEST(help_has_each_setting_with_default_and_what_is_allowed)
{
	char text[4096];
	FILE *out = fmemopen(text, sizeof text, "w");

	assert_non_null(out);
	config_print_help(out);
	assert_int_equal(fclose(out), 0);
	for (size_t i = 0; i < COUNT(names); i++)
		assert_contains(text, names[i]);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_contains(text, bad[i].allowed);
	assert_contains(text, "PLANT_STORE_BODY_BYTES_MAX (65536)\n");
}
