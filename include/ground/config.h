/*
 * config: the settings, read once from the environment and checked.  Their
 * names, defaults and bounds are one table in config.c.  The operator's command
 * first adds those of a file, which is where a machine has them.
 *
 * A variable that is set but empty counts as absent.
 */
#ifndef GROUND_CONFIG_H
#define GROUND_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "ground/fault.h"
#include "ground/log.h"

/* The largest body that may be configured; it bounds a line of the journal. */
#define CONFIG_BODY_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_THREADS_MAX 64

/* What stands between two origins. */
#define CONFIG_SEPARATORS " ,"

struct config {
	const char *file;      /* that has some of them, or NULL */
	const char *dir;       /* of the store */
	const char *database;  /* NULL: none; it may hold a password */
	const char *tokens;    /* the token file */
	const char *base_path; /* no trailing slash; "" for the root */
	const char *origins;   /* between CONFIG_SEPARATORS; "" or NULL: none */
	const char *metrics_path, *health_path; /* "" or NULL: none */
	size_t body_bytes_max;
	unsigned threads;     /* reactors */
	bool contract_status; /* every failure is 400 */
	bool sandbox;
	enum log_level log_level;
};

/*
 * config_read(config):
 * Fill `config` from the environment.  Its strings belong to the environment
 * and stay as long as that is not changed.  Return FAULT_NONE; or FAULT_SETUP,
 * with the variable, its value and what is allowed logged, and `config` as it
 * was.  From the call on, the log has the form that the environment demands.
 */
enum fault config_read(struct config *config);

/*
 * config_is_given(), config_warn_unknown():
 * Whether a setting is in the environment; log a warning for each name there
 * that begins with PLANT_STORE_ and is no setting.
 *
 * config_use_file(only, named):
 * Add the settings of the machine's file to the environment, which keeps what
 * it has.  Where that names a store, or the caller does (`named`), the file
 * cannot name another; and one that cannot be read is none, so that ordinary
 * users can work on stores of their own.  Or use those of the file `only`.
 *
 * The file has a part of what systemd's EnvironmentFile= allows: lines
 * NAME=VALUE, blank ones, and such that begin with # or ;.  A setting's whole
 * VALUE may be in quotes, ' or "; else it has none, nor a backslash.  Unknown
 * names are warned of.  FAULT_SETUP, logged, if there is another line, or if
 * root cannot trust it; or why it cannot be read.  CONFIG_FILE_VARIABLE names
 * another file: for tests, and for a second service of a machine.
 */
#define CONFIG_FILE "/etc/plant-store/environment"
#define CONFIG_FILE_VARIABLE "PLANT_STORE_ENVIRONMENT"
bool config_is_given(void);
void config_warn_unknown(void);
enum fault config_use_file(const char *only, bool named);

/*
 * config_print_help(out):
 * Print each setting with its default, its meaning and what is allowed.  Errors
 * are left in `out` for ferror.
 */
void config_print_help(FILE *out);

#endif
