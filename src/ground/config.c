/* config: the settings, from the environment.  See ground/config.h. */
#include "ground/config.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 64
#define BODY_BYTES_MIN 64

static const char *
setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : otherwise;
}

static int
refuse(char *error, size_t error_len, const char *name, const char *value,
    const char *allowed)
{
	snprintf(error, error_len, "%s: '%.64s' is not allowed; set it to %s",
	    name, value, allowed);
	/* One line, whatever the value holds. */
	for (char *c = error; *c != '\0'; c++)
		if (*c == '\n' || *c == '\r')
			*c = '?';
	return -1;
}

/* Decimal digits only: strtoul alone would take signs and spaces. */
static int
read_number(const char *text, unsigned long min, unsigned long max,
    unsigned long *number)
{
	if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0')
		return -1;
	errno = 0;
	unsigned long value = strtoul(text, NULL, 10);
	if (errno != 0 || value < min || value > max)
		return -1;
	*number = value;
	return 0;
}

/*
 * One for every two CPUs: the web server needs as much, and each reactor more
 * makes the batches of the others smaller.
 */
static unsigned long
default_threads(void)
{
	cpu_set_t set;
	int count = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		count = (CPU_COUNT(&set) + 1) / 2;
	return count > THREADS_MAX ? THREADS_MAX : (unsigned long)count;
}

/* "" or /seg(/seg)*: what a server gives is decoded and normalised. */
static int
is_base_path(const char *path)
{
	size_t len = strlen(path);

	if (len == 0)
		return 1;
	return path[0] == '/' && path[len - 1] != '/' &&
	       strstr(path, "//") == NULL && strpbrk(path, "?#") == NULL;
}

int
config_read(struct config *config, char *error, size_t error_len)
{
	static const char *const levels[] = { "error", "warning", "info",
		"debug" };
	struct config read = { 0 };
	const char *text;
	unsigned long number;

	text = setting("PLANT_STORE_DIR", "/var/lib/plant-store");
	if (text[0] != '/')
		return refuse(error, error_len, "PLANT_STORE_DIR", text,
		    "the absolute path of the store's directory");
	read.dir = text;

	text = setting("PLANT_STORE_TOKENS", "/etc/plant-store/tokens");
	if (text[0] != '/')
		return refuse(error, error_len, "PLANT_STORE_TOKENS", text,
		    "the absolute path of the token file");
	read.tokens = text;

	text = setting("PLANT_STORE_BASE_PATH", "");
	if (strcmp(text, "/") == 0)
		text = "";
	if (!is_base_path(text))
		return refuse(error, error_len, "PLANT_STORE_BASE_PATH", text,
		    "a path such as /api/v1, or nothing for the root");
	read.base_path = text;

	text = setting("PLANT_STORE_BODY_BYTES_MAX", "65536");
	if (read_number(text, BODY_BYTES_MIN, CONFIG_BODY_BYTES_MAX, &number))
		return refuse(error, error_len, "PLANT_STORE_BODY_BYTES_MAX",
		    text, "a number of bytes from 64 to 1048576");
	read.body_bytes_max = number;

	text = setting("PLANT_STORE_THREADS", NULL);
	number = default_threads();
	if (text != NULL && read_number(text, 1, THREADS_MAX, &number))
		return refuse(error, error_len, "PLANT_STORE_THREADS", text,
		    "a number from 1 to 64");
	read.threads = (unsigned)number;

	text = setting("PLANT_STORE_STATUS", "http");
	read.contract_status = strcmp(text, "contract") == 0;
	if (!read.contract_status && strcmp(text, "http") != 0)
		return refuse(error, error_len, "PLANT_STORE_STATUS", text,
		    "http or contract");

	text = setting("PLANT_STORE_LOG_LEVEL", "info");
	for (number = 0; number < 4; number++)
		if (strcmp(text, levels[number]) == 0)
			break;
	if (number == 4)
		return refuse(error, error_len, "PLANT_STORE_LOG_LEVEL", text,
		    "error, warning, info or debug");
	read.log_level = (enum log_level)number;

	*config = read;
	return 0;
}
