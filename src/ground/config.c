/* config: the settings, from the environment.  See ground/config.h. */
#include "ground/config.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#define BODY_BYTES_MIN 64
#define PREFIX "PLANT_STORE_"
#define BLANKS " \t\r\n"

/* All settings, from deploy/settings.txt: name, default, meaning, allowed. */
enum {
#define X(name, otherwise, meaning, allowed) name,
#include "settings.txt.h"
#undef X
	COUNT
};

static const struct {
	const char *name, *otherwise, *meaning, *allowed;
} settings[COUNT] = {
#define X(name, ...) { PREFIX #name, __VA_ARGS__ },
#include "settings.txt.h"
#undef X
};

static const char *used; /* the settings file that was read, or NULL */

/* A setting's value in the environment; NULL if it is unset or empty. */
static const char *
get(int i)
{
	const char *value = getenv(settings[i].name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Decimal digits only: strtoul alone would accept signs and spaces. */
static bool
read_number(const char *text, unsigned long min, unsigned long max,
    unsigned long *number)
{
	*number = strtoul(text, NULL, 10);
	return text[strspn(text, "0123456789")] == '\0' && *number >= min &&
	       *number <= max;
}

/* Half the CPUs: the web server needs the rest, and batches stay larger. */
static unsigned long
default_threads(void)
{
	cpu_set_t set;
	int count = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		count = (CPU_COUNT(&set) + 1) / 2;
	return (unsigned long)MIN(count, CONFIG_THREADS_MAX);
}

/* "" or /seg(/seg)*: servers pass the path decoded and normalised. */
static bool
is_base_path(const char *path)
{
	size_t len = strlen(path);

	return len == 0 ||
	       (path[0] == '/' && path[len - 1] != '/' &&
		   strstr(path, "//") == NULL && strpbrk(path, "?#") == NULL);
}

/* Empty, or a path outside `base`; outside /plants if `base` is empty. */
static bool
is_apart(const char *path, const char *base)
{
	const char *plants = base[0] != '\0' ? base : "/plants";
	size_t len = strlen(plants);

	return is_base_path(path) &&
	       (strncmp(path, plants, len) != 0 ||
		   (path[len] != '\0' && path[len] != '/'));
}

/*
 * scheme://host[:port] in lower case, as a browser sends it (RFC 6454, section
 * 6.2).  The widths bound the head of a response, which repeats one origin.
 */
#define SCHEME "%*16[a-z0-9+.-]://"
static bool
are_origins(const char *list)
{
	for (;;) {
		int end = 0, port = 0;

		list += strspn(list, CONFIG_SEPARATORS);
		if (*list == '\0')
			return true;
		sscanf(list, SCHEME "%*253[a-z0-9.-]%n", &end);
		if (end == 0)
			sscanf(list, SCHEME "[%*45[0-9a-f:.]]%n", &end);
		if (end > 0 && list[end] == ':')
			sscanf(list + end, ":%*5[0-9]%n", &port);
		list += end + port;
		if (end == 0 || strchr(CONFIG_SEPARATORS, *list) == NULL)
			return false;
	}
}

/* Messages about the settings have this format already. */
static void
set_log_format(void)
{
	const char *format = get(LOG_FORMAT);

	log_json = format != NULL && strcmp(format, "json") == 0;
}

enum fault
config_read(struct config *config)
{
	static const char *const levels[] = { "error", "warning", "info",
		"debug" };
	const char *value[COUNT];
	unsigned long body_bytes, threads = default_threads();
	bool good[COUNT] = { false }, contract;
	int level = LOG_AT_DEBUG;

	for (int i = 0; i < COUNT; i++)
		value[i] = get(i) != NULL ? get(i) : settings[i].otherwise;
	if (strcmp(value[BASE_PATH], "/") == 0)
		value[BASE_PATH] = "";
	contract = strcmp(value[STATUS], "contract") == 0;
	set_log_format();
	while (level >= 0 && strcmp(value[LOG_LEVEL], levels[level]) != 0)
		level--;

	good[DIR] = value[DIR][0] == '/';
	good[DATABASE] = true; /* libpq checks it */
	good[TOKENS] = value[TOKENS][0] == '/';
	good[BASE_PATH] = is_base_path(value[BASE_PATH]);
	good[BODY_BYTES_MAX] = read_number(value[BODY_BYTES_MAX],
	    BODY_BYTES_MIN, CONFIG_BODY_BYTES_MAX, &body_bytes);
	good[THREADS] =
	    value[THREADS] == settings[THREADS].otherwise ||
	    read_number(value[THREADS], 1, CONFIG_THREADS_MAX, &threads);
	good[STATUS] = contract || strcmp(value[STATUS], "http") == 0;
	good[LOG_LEVEL] = level >= 0;
	good[LOG_FORMAT] = log_json || strcmp(value[LOG_FORMAT], "text") == 0;
	good[CORS_ORIGINS] = are_origins(value[CORS_ORIGINS]);
	good[METRICS_PATH] = is_apart(value[METRICS_PATH], value[BASE_PATH]);
	good[HEALTH_PATH] =
	    is_apart(value[HEALTH_PATH], value[BASE_PATH]) &&
	    (value[HEALTH_PATH][0] == '\0' ||
		strcmp(value[HEALTH_PATH], value[METRICS_PATH]) != 0);
	good[SANDBOX] = strcmp(value[SANDBOX], "off") == 0 ||
			strcmp(value[SANDBOX], "on") == 0;
	for (int i = 0; i < COUNT; i++)
		if (!good[i]) {
			log_error("%s: '%.64s' is not allowed; set it to %s",
			    settings[i].name, value[i], settings[i].allowed);
			return FAULT_SETUP;
		}
	*config = (struct config){ .file = used,
		.dir = value[DIR],
		.database = value[DATABASE][0] != '\0' ? value[DATABASE] : NULL,
		.tokens = value[TOKENS],
		.base_path = value[BASE_PATH],
		.origins = value[CORS_ORIGINS],
		.metrics_path = value[METRICS_PATH],
		.health_path = value[HEALTH_PATH],
		.body_bytes_max = body_bytes,
		.threads = (unsigned)threads,
		.contract_status = contract,
		.sandbox = strcmp(value[SANDBOX], "on") == 0,
		.log_level = (enum log_level)level };
	return FAULT_NONE;
}

/* Return whether `text` is `name`, alone or followed by "=VALUE". */
static bool
is_named(const char *text, const char *name)
{
	size_t len = strcspn(text, "=");

	return len == strlen(name) && memcmp(text, name, len) == 0;
}

/* Find a setting by name, or COUNT; warn about unknown names with PREFIX. */
static int
find_setting(const char *text)
{
	int i = 0;

	while (i < COUNT && !is_named(text, settings[i].name))
		i++;
	/* These two are not settings; plant-store-start passes the first on. */
	if (i == COUNT && strncmp(text, PREFIX, strlen(PREFIX)) == 0 &&
	    !is_named(text, PREFIX "RESPONDER") &&
	    !is_named(text, CONFIG_FILE_VARIABLE))
		log_warning("%.*s: there is no such setting, so it is "
			    "ignored; --help lists all",
		    (int)strcspn(text, "="), text);
	return i;
}

void
config_warn_unknown(void)
{
	set_log_format();
	for (char **entry = environ; *entry != NULL; entry++)
		(void)find_setting(*entry);
}

bool
config_is_given(void)
{
	bool given = false;

	for (int i = 0; i < COUNT; i++)
		given |= get(i) != NULL;
	return given;
}

/* Apply a line, unless its setting is `kept`.  Return whether it is valid. */
static bool
use_line(char *line, const bool kept[static COUNT])
{
	char name[64], *value;
	int at = 0, i;
	size_t len;

	/* A comment, or a blank line. */
	if (strchr("#;", line[strspn(line, BLANKS)]) != NULL)
		return true;
	if (sscanf(line, " %63[A-Za-z0-9_] =%n", name, &at) < 1 || at == 0)
		return false;
	i = find_setting(name);
	if (i == COUNT || kept[i])
		return true;
	value = line + at + strspn(line + at, BLANKS);
	len = strlen(value);
	while (len > 0 && strchr(BLANKS, value[len - 1]) != NULL)
		value[--len] = '\0';
	if (len > 1 && strchr("\"'", value[0]) != NULL &&
	    value[len - 1] == value[0]) {
		value[len - 1] = '\0';
		value++;
	}
	return strpbrk(value, "\"'\\") == NULL && setenv(name, value, 1) == 0;
}

static enum fault
use_lines(FILE *file, const char *path, const bool kept[static COUNT])
{
	enum fault fault = FAULT_NONE;
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	for (int n = 1; (len = getline(&line, &size, file)) >= 0; n++)
		if (strlen(line) != (size_t)len || !use_line(line, kept)) {
			log_error("%s: line %d: not NAME=VALUE (quotes only "
				  "around VALUE, no backslash); correct it",
			    path, n);
			fault = FAULT_SETUP;
		}
	if (!feof(file))
		fault = fault_report(path, "cannot read");
	free(line);
	return fault;
}

enum fault
config_use_file(const char *only, bool named)
{
	const char *path = only != NULL ? only : getenv(CONFIG_FILE_VARIABLE);
	enum fault fault = FAULT_SETUP;
	struct stat st;
	bool kept[COUNT];

	if (path == NULL || path[0] == '\0')
		path = CONFIG_FILE;
	FILE *file = fopen(path, "re");
	for (int i = 0; i < COUNT; i++) {
		if (only != NULL)
			unsetenv(settings[i].name);
		kept[i] = get(i) != NULL;
	}
	named = named || kept[DIR] || kept[DATABASE];
	kept[DIR] = kept[DATABASE] = named;
	if (file == NULL && only == NULL &&
	    (errno == ENOENT || (errno == EACCES && named)))
		return FAULT_NONE;
	if (file == NULL) {
		log_error("%s: cannot open: %s%s", path, strerror(errno),
		    errno == EACCES ? "; run this with sudo, or name the store"
				    : fault_remedy(errno));
		return fault_of(errno);
	}
	/* A user who can write to this file could make root use any file. */
	if (geteuid() == 0 && fstat(fileno(file), &st) == 0 &&
	    (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0))
		log_error("%s: users other than root can write to it, so root "
			  "refuses it; run: chown root %s && chmod go-w "
			  "%s",
		    path, path, path);
	else
		fault = use_lines(file, path, kept);
	fclose(file);
	set_log_format();
	if (fault == FAULT_NONE)
		used = path;
	return fault;
}

void
config_print_help(FILE *out)
{
	fputs("Settings, from the environment, and their defaults:\n", out);
	for (int i = 0; i < COUNT; i++)
		fprintf(out, "  %s (%s)\n      %s: %s\n", settings[i].name,
		    settings[i].otherwise, settings[i].meaning,
		    settings[i].allowed);
}
