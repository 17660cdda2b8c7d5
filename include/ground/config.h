/*
 * config: the settings, read once from the environment and checked.
 * `plant-store` first adds the settings in CONFIG_FILE to the environment.  An
 * empty variable counts as absent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "ground/fault.h"
#include "ground/log.h"

/* The largest configurable body; it bounds the length of a journal line. */
#define CONFIG_BODY_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_THREADS_MAX 64
#define CONFIG_SEPARATORS " ," /* between two CORS origins */

struct config {
	const char *file;      /* the file that config_use_file read, or NULL */
	const char *dir;       /* the store's directory */
	const char *database;  /* connection string (may be secret) or NULL */
	const char *tokens;    /* the token file */
	const char *base_path; /* no trailing slash; "" for the root */
	const char *origins;   /* a list; "" or NULL: none */
	const char *metrics_path, *health_path; /* "" or NULL: none */
	size_t body_bytes_max;
	unsigned threads;     /* the number of reactors */
	bool contract_status; /* every failure is answered 400 */
	bool sandbox;
	enum log_level log_level;
};

/*
 * config_read(config):
 * Fill `config`, and set log_json.  The strings point into the environment.
 * Return FAULT_NONE; or log the variable, its value and the allowed values,
 * return FAULT_SETUP and leave `config` unchanged.
 *
 * config_is_given(), config_warn_unknown():
 * Return whether the environment contains any setting.  Set log_json from the
 * environment, and log a warning for each variable that begins with
 * PLANT_STORE_ and is not a setting.
 *
 * config_print_help(out):
 * Print the default, the meaning and the allowed values of each setting.  The
 * caller checks ferror(out).
 *
 * config_use_file(only, named):
 * Add the settings in CONFIG_FILE, if it exists, to the environment; settings
 * that are already there keep their values.  If the environment or the caller
 * (`named`) names a store, one that the file names is ignored.  The file then
 * need not be readable: users can work on their own stores.  If `only` is not
 * NULL, read that file instead and ignore the environment's settings.
 *
 * The file's syntax is a subset of systemd's EnvironmentFile=: NAME=VALUE,
 * blank lines, and lines that begin with # or ;.  A whole VALUE may be quoted
 * with ' or "; it contains no other quote and no backslash.  Return FAULT_SETUP
 * for any other line or for a file that root cannot trust, or the fault of
 * errno; both are logged.  CONFIG_FILE_VARIABLE can name another file, for
 * tests and for a second service on the same machine.
 */
#define CONFIG_FILE "/etc/plant-store/environment"
#define CONFIG_FILE_VARIABLE "PLANT_STORE_ENVIRONMENT"
enum fault config_read(struct config *config);
bool config_is_given(void);
void config_warn_unknown(void);
void config_print_help(FILE *out);
enum fault config_use_file(const char *only, bool named);
